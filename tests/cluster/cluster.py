"""A Kubernetes cluster for tests, wherever it comes from: a kubeconfig, and a way to give it images."""

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, assert_never

from outbox_cli.local.errors import LocalServiceError
from tests.cluster import kept, kind
from tests.cluster.choice import Given, Kind, Local, choose
from tests.cluster.local import LocalCluster, local_cluster

LOAD_VARIABLE = "OUTBOX_CLUSTER_LOAD"
"""The command that gives images to a cluster of somebody else's; the archive's path is added to it."""
_LOAD_SECONDS = 900


class Cluster(Protocol):
    """A cluster that runs."""

    @property
    def kubeconfig(self) -> Path:
        """How its administrator gets in, from this machine."""

    def load(self, archive: Path) -> None:
        """Give it the images of an archive, which pods can then use (`imagePullPolicy: IfNotPresent`)."""

    def down(self) -> None:
        """End it and leave nothing behind; one that was there before stays."""


@contextmanager
def cluster(
    progress: Callable[[str], None], asked: str = "auto", environment: Mapping[str, str] = os.environ
) -> Iterator[Cluster]:
    """The cluster that was asked for (see `choice`); what was started for it is ended again."""
    source = choose(asked, kind.works)
    match source:
        case Given(kubeconfig):
            yield given(kubeconfig, environment)
        case Kind():
            with kind.kind_cluster(progress) as made:
                yield made
        case Local():
            with local_cluster(progress, environment) as started:
                yield started
        case _:
            assert_never(source)


@dataclass(frozen=True)
class GivenCluster:
    """A cluster that somebody else runs: we use it, and leave it."""

    kubeconfig: Path
    _load: Callable[[Path], None]

    def load(self, archive: Path) -> None:
        """In the way that belongs to it."""
        self._load(archive)

    def down(self) -> None:
        """It stays."""


def told(cluster: Cluster) -> dict[str, Any]:
    """What another process has to know of a cluster that runs, in plain values."""
    local = cluster.description() if isinstance(cluster, LocalCluster) else None
    return {"kubeconfig": str(cluster.kubeconfig), "local": local}


def known(what: Mapping[str, Any]) -> Cluster:
    """The cluster that another process tells of, which ends it, too."""
    if what["local"]:
        return LocalCluster.described(what["local"])
    return given(Path(what["kubeconfig"]))


def given(kubeconfig: Path, environment: Mapping[str, str] = os.environ) -> GivenCluster:
    """The cluster of a kubeconfig; images get into it by itself where `up` made it, else by a command."""
    if not kubeconfig.is_file():
        raise LocalServiceError(f"--cluster={kubeconfig}: there is no such kubeconfig")
    for ours in (kept.find(), kind.find()):
        if ours and ours.kubeconfig.resolve() == kubeconfig.resolve():
            return GivenCluster(kubeconfig, ours.load)
    return GivenCluster(kubeconfig, lambda archive: _load(environment.get(LOAD_VARIABLE), archive))


def _load(command: str | None, archive: Path) -> None:
    if not command:
        raise LocalServiceError(
            f"nobody here knows how to give {archive.name} to a cluster of your own; set {LOAD_VARIABLE}, "
            f"for example to 'minikube image load'"
        )
    done = subprocess.run(
        [*shlex.split(command), str(archive)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LOAD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise LocalServiceError(f"{command} {archive} failed:\n{done.stderr.strip()}")
