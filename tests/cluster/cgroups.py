"""The control group that all pods of a cluster are in, named after the process that owns the cluster."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from outbox_cli.local import processes
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.processes import Process

_ROOT = Path("/sys/fs/cgroup")
_NAME = re.compile(r"outbox-cluster-(\d+)-(\d+)-.*")
_REMOVE_SECONDS = 10.0
_POLL_SECONDS = 0.05


class ControlGroup:
    """One group, in each hierarchy where the kernel has several (cgroup v1)."""

    def __init__(self, owner: Process, run: str) -> None:
        """For the cluster of `owner` whose folder has the name `run`."""
        self.name = f"outbox-cluster-{owner.pid}-{owner.started}-{run}"

    def create(self) -> None:
        """Make it: a kubelet wants its own to be there."""
        for hierarchy in _hierarchies():
            _hand_down_controllers(hierarchy)
            (hierarchy / self.name).mkdir()

    def remove(self) -> None:
        """Take it away, with the groups of the pods, whose processes have ended."""
        if not _is_removed(self.name, _REMOVE_SECONDS):
            raise LocalServiceError(
                f"control group {self.name} still has processes in it; find them: "
                f"cat {_ROOT}/*/{self.name}/**/cgroup.procs"
            )


def sweep() -> None:
    """Remove the groups whose owner is dead, and whose pods are."""
    names = {path.name for hierarchy in _hierarchies() for path in hierarchy.glob("outbox-cluster-*")}
    for name in names:
        if (found := _NAME.fullmatch(name)) and not processes.is_alive(Process(int(found[1]), int(found[2]))):
            _is_removed(name, seconds=0)


def _hierarchies() -> Iterator[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        yield _ROOT
        return
    for path in _ROOT.iterdir():
        if not path.is_symlink() and (path / "cgroup.procs").exists():
            yield path


def _hand_down_controllers(hierarchy: Path) -> None:
    """With cgroup v2, a group has the controllers that the one above lets it have; a kubelet wants all."""
    try:
        controllers = (hierarchy / "cgroup.controllers").read_text().split()
    except FileNotFoundError:
        return
    for controller in controllers:
        # A kubelet says which it misses, in its log, which a failed start shows.
        with suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")


def _is_removed(name: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        left = [path for hierarchy in _hierarchies() if (path := hierarchy / name).exists()]
        for path in left:
            _remove_tree(path)
        if not any(path.exists() for path in left):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)


def _remove_tree(top: Path) -> None:
    # Their files go with the folders, and cannot be removed one by one.
    for path in sorted((path for path in top.glob("**/") if path != top), reverse=True):
        with suppress(OSError):
            path.rmdir()
    with suppress(OSError):
        top.rmdir()
