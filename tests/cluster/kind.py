"""A cluster in a Docker container, by kind (https://kind.sigs.k8s.io)."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from outbox_cli.local import docker, runfolder
from outbox_cli.local.errors import LocalServiceError

CONFIGURATION = Path(__file__).parent / "kind.yaml"
"""What kind is told to make."""
_NAME = "outbox-tests"
_READY = "180s"
_COMMAND_SECONDS = 900


def works() -> bool:
    """Whether there is a kind, and an engine for it."""
    return which("kind") is not None and docker.answers()


@dataclass(frozen=True)
class KindCluster:
    """A cluster that kind made."""

    kubeconfig: Path
    """How its administrator gets in, from this machine."""

    def load(self, archive: Path) -> None:
        """Give it the images of an archive, which pods can then use (`imagePullPolicy: IfNotPresent`)."""
        _kind("load", "image-archive", str(archive), f"--name={_NAME}")

    def down(self) -> None:
        """Remove it."""
        _kind("delete", "cluster", f"--name={_NAME}", f"--kubeconfig={self.kubeconfig}")
        self.kubeconfig.unlink(missing_ok=True)


def find() -> KindCluster | None:
    """Ours, where it is up."""
    if not works() or _NAME not in _kind("get", "clusters").split():
        return None
    found = KindCluster(runfolder.parent_folder() / "kind.kubeconfig")
    _kind("export", "kubeconfig", f"--name={_NAME}", f"--kubeconfig={found.kubeconfig}")
    return found


def create(progress: Callable[[str], None]) -> KindCluster:
    """Make it, where it is not there yet."""
    if found := find():
        return found
    if not works():
        raise LocalServiceError("kind needs the program kind and a Docker engine that answers; install both")
    progress("creating a cluster with kind (a minute, and the download of its image the first time) …")
    made = KindCluster(runfolder.parent_folder() / "kind.kubeconfig")
    options = (f"--name={_NAME}", f"--config={CONFIGURATION}", f"--kubeconfig={made.kubeconfig}")
    _kind("create", "cluster", *options, f"--wait={_READY}")
    return made


@contextmanager
def kind_cluster(progress: Callable[[str], None]) -> Iterator[KindCluster]:
    """The one that is up, which then stays, else one that is removed afterwards."""
    if found := find():
        yield found
        return
    made = create(progress)
    try:
        yield made
    finally:
        made.down()


def _kind(*arguments: str) -> str:
    done = subprocess.run(
        ["kind", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise LocalServiceError(f"kind {' '.join(arguments)} failed:\n{done.stderr.strip()}")
    return done.stdout
