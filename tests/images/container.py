"""Containers of an image as a restricted pod has them: read-only, no capabilities, the image's own user."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.images.buildah import Buildah
from tests.images.catalogue import Image

_ID_SECONDS = 30
_MOUNTS: Sequence[Mapping[str, Any]] = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},  # noqa: S108 - the container's own
)
# The network is the machine's, so that a test can serve something to the container.
_NAMESPACES = ("pid", "ipc", "uts", "mount")


@dataclass(frozen=True)
class Ended:
    """How a container ended, and what it said."""

    status: int
    output: str
    errors: str


class Container:
    """A container that runs. Its process is the first one there, as in a pod."""

    def __init__(self, name: str, state: Path, process: "subprocess.Popen[str]") -> None:
        self._runc = ("runc", f"--root={state}")
        self._name = name
        self._process = process

    def terminate(self, signal: str = "TERM") -> None:
        """Send a signal, as the kubelet does: SIGTERM unless the image says another."""
        subprocess.run([*self._runc, "kill", self._name, signal], check=True, timeout=_ID_SECONDS)

    def ended(self, seconds: float = 60) -> Ended:
        """Wait for its end."""
        output, errors = self._process.communicate(timeout=seconds)
        return Ended(self._process.returncode, output, errors)

    def remove(self) -> None:
        """Take away what is left of it."""
        subprocess.run(
            [*self._runc, "delete", "--force", self._name],
            check=True,
            capture_output=True,
            timeout=_ID_SECONDS,
        )
        self._process.communicate(timeout=_ID_SECONDS)


@contextmanager
def container(
    buildah: Buildah,
    image: Image,
    *,
    arguments: Sequence[str] = (),
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    data: str | None = None,
    mounts: Mapping[str, Path] | None = None,
) -> Iterator[Container]:
    """Run an image, with arguments for its entry point or a command instead of that, with a folder that it
    may write to where it keeps its data, and with files and folders of this machine."""
    says = buildah.configuration(image.reference)["config"]
    run = [*(says["Entrypoint"] if command is None else command), *arguments]
    with tempfile.TemporaryDirectory(prefix="outbox-container-") as folder, _root(buildah, image) as root:
        folders = list(_folders(says, data, mounts or {}))
        specification = _specification(root, says, run, environment or {}, folders)
        (Path(folder) / "config.json").write_text(json.dumps(specification))
        name, state = f"outbox-{uuid4().hex[:12]}", Path(folder) / "state"
        process = subprocess.Popen(
            ["runc", f"--root={state}", "run", f"--bundle={folder}", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started = Container(name, state, process)
        try:
            yield started
        finally:
            started.remove()


def run(buildah: Buildah, image: Image, *arguments: str, command: Sequence[str] | None = None) -> Ended:
    """Run a container to its end."""
    with container(buildah, image, arguments=arguments, command=command) as started:
        return started.ended()


@contextmanager
def _root(buildah: Buildah, image: Image) -> Iterator[Path]:
    name = buildah.run("from", "--pull-never", image.reference).strip()
    try:
        yield Path(buildah.run("mount", name).strip())
    finally:
        buildah.run("rm", name)


def _specification(
    root: Path,
    says: Mapping[str, Any],
    run: Sequence[str],
    environment: Mapping[str, str],
    mounts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What runc is told (config.json of the OCI's runtime specification)."""
    given = dict(each.split("=", 1) for each in says["Env"])
    user, group = map(int, says["User"].split(":"))
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group},
            "args": list(run),
            "env": [f"{name}={value}" for name, value in {**given, **environment}.items()],
            "cwd": says.get("WorkingDir", "/"),
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [*_MOUNTS, *mounts],
        "linux": {"namespaces": [{"type": kind} for kind in _NAMESPACES]},
    }


def _folders(
    says: Mapping[str, Any], data: str | None, shared: Mapping[str, Path]
) -> Iterator[Mapping[str, Any]]:
    """What a container has beside its image: a folder of its user, and what is this machine's."""
    user, group = says["User"].split(":")
    if data:
        yield {**_MOUNTS[-1], "destination": data, "options": [f"uid={user}", f"gid={group}"]}
    for destination, source in shared.items():
        yield {"destination": destination, "type": "bind", "source": str(source), "options": ["bind"]}
