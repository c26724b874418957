"""Helm as a user types it, with folders of its own."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

CHART = Path(__file__).parents[2] / "charts" / "outbox-operator"
RELEASE = "outbox-operator"
KUBERNETES = ("--kube-version", "v1.34.0")
"""What a Helm that was built with `go install` takes for v1.20 where it has no cluster to ask."""
_SECONDS = 120


class HelmError(Exception):
    """What Helm said when it failed."""


@dataclass(frozen=True)
class Helm:
    """One Helm."""

    program: Path
    folder: Path
    """Where it keeps what it keeps."""
    kubeconfig: Path | None = None
    """The cluster that it talks to, where it does."""

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """What it prints, or a `HelmError` with what it complains of."""
        given = ("--values", "-") if values is not None else ()
        homes = {f"HELM_{home}_HOME": str(self.folder / home.lower()) for home in ("CACHE", "CONFIG", "DATA")}
        # Without a cluster of ours it must not find one of the user's.
        kubeconfig = self.kubeconfig or self.folder / "none"
        done = subprocess.run(
            [self.program, *arguments, *given],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "KUBECONFIG": str(kubeconfig),
                **homes,
            },
            input=yaml.safe_dump(dict(values)) if values is not None else "",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout

    def text(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        namespace: str = "operators",
        chart: Path = CHART,
    ) -> str:
        """What an installation makes, the pod of `helm test` included."""
        where = ("--namespace", namespace, *KUBERNETES)
        return self.run("template", RELEASE, str(chart), *where, values=values or {})

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        namespace: str = "operators",
        chart: Path = CHART,
    ) -> list[Manifest]:
        """The same as objects."""
        text = self.text(values, namespace=namespace, chart=chart)
        return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def only(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The object of a kind, and of a name where there are several."""
    [found] = [
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and name in ("", manifest["metadata"]["name"])
    ]
    return found
