"""One control plane for the pytest workers of a run: whoever needs it first starts it, and stops it last."""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from tests.operator.control_plane.programs import Programs
from tests.operator.control_plane.server import ControlPlane


@contextmanager
def shared(folder: Path, start: Callable[[], AbstractContextManager[ControlPlane]]) -> Iterator[ControlPlane]:
    """The control plane that another process told of in `folder`, else the one that `start` gives.

    Its users are those who hold a lock on a file in its folder, which the kernel takes back from the dead.
    """
    notice = folder / "control-plane.json"
    with (folder / "control-plane.turn").open("w") as turn:
        _lock(turn, fcntl.LOCK_EX)
        if notice.exists():
            found = _read(notice)
            with _users(found) as users:
                _lock(users, fcntl.LOCK_SH)
                _lock(turn, fcntl.LOCK_UN)
                yield found
            return
        with start() as started, _users(started) as users:
            notice.write_text(_text(started))
            _lock(turn, fcntl.LOCK_UN)
            try:
                yield started
            finally:
                _lock(turn, fcntl.LOCK_EX)
                notice.unlink()
                _lock(turn, fcntl.LOCK_UN)
                # Waits for the others; whoever comes now starts another one.
                _lock(users, fcntl.LOCK_EX)


def _users(plane: ControlPlane) -> IO[str]:
    return (plane.folder / "users").open("w")


def _lock(file: IO[str], kind: int) -> None:
    fcntl.flock(file, kind)


def _text(plane: ControlPlane) -> str:
    programs = plane.programs
    return json.dumps(
        {
            "url": plane.url,
            "folder": str(plane.folder),
            "programs": [str(path) for path in (programs.etcd, programs.apiserver, programs.kubectl)],
        }
    )


def _read(notice: Path) -> ControlPlane:
    found = json.loads(notice.read_text())
    return ControlPlane(found["url"], Path(found["folder"]), Programs(*map(Path, found["programs"])))
