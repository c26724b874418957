"""The folder of one run, and the removal of those whose run was killed."""

import json
import os
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from outbox_cli.local import account, docker, processes
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.processes import Process

_RECORD = "run.json"
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Child:
    """A server, and the signal that ends it at once with nothing left behind."""

    process: Process
    quit_signal: int


@dataclass(frozen=True)
class Record:
    """What the next run must know to clean up after this one."""

    owner: Process
    """The process that started the services."""
    children: tuple[Child, ...] = ()
    """The servers."""
    containers: tuple[str, ...] = ()
    """Names of Docker containers, written before they are made."""
    is_kept: bool = False
    """Whether the folder stays when the run is over."""

    def to_json(self) -> str:
        """As it is in the folder."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """As it was in the folder."""
        raw = json.loads(text)
        return cls(
            owner=Process(**raw["owner"]),
            children=tuple(
                Child(Process(**child["process"]), child["quit_signal"]) for child in raw["children"]
            ),
            containers=tuple(raw["containers"]),
            is_kept=raw.get("is_kept", False),
        )


class RunFolder:
    """A folder that holds all that one run leaves on the disk: for its time, or kept for the next one."""

    def __init__(self, path: Path, owner: Process, *, is_kept: bool = False) -> None:
        self.path = path
        self.is_kept = is_kept
        """Whether a later run goes on with it."""
        self.account = account.for_servers()
        self._record = Record(owner, is_kept=is_kept)
        self._lock = threading.Lock()
        self._write()

    @classmethod
    def create(cls, parent: Path) -> "RunFolder":
        """Make a new one, owned by this process."""
        path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
        # The servers' account passes through to its own folders, and sees nothing else.
        path.chmod(0o711)
        return cls(path, processes.current())

    @classmethod
    def keep(cls, path: Path) -> "RunFolder":
        """Make one that outlives the run, or go on with it; what a killed run left running there is ended."""
        path.mkdir(mode=0o711, exist_ok=True)
        if record := read(path):
            if processes.is_alive(record.owner):
                raise LocalServiceError(
                    f"{path} is in use by process {record.owner.pid}; stop that one, or do not keep the data"
                )
            _remove(path, record)
        return cls(path, processes.current(), is_kept=True)

    def subfolder(self, name: str) -> Path:
        """A folder for one server, owned by the account that the server runs under."""
        path = self.path / name
        path.mkdir(mode=0o700, parents=True, exist_ok=self.is_kept)
        if self.account:
            self.account.owns(path)
        return path

    def password(self, folder: Path) -> str:
        """A password for the server of a folder: a new one, or where the data is kept the one of before."""
        path = folder / "kept-password"
        if self.is_kept and path.exists():
            return path.read_text()
        password = secrets.token_urlsafe(18)
        if self.is_kept:
            self.secret_file(path, password)
        return password

    def secret_file(self, path: Path, text: str) -> Path:
        """Write a file that only the server's account can read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        if self.account:
            self.account.owns(path)
        return path

    def add_child(self, process: Process, quit_signal: int) -> None:
        """Write down a server that was started."""
        with self._lock:
            living = [known for known in self._record.children if processes.is_alive(known.process)]
            self._record = replace(self._record, children=(*living, Child(process, quit_signal)))
            self._write()

    def add_container(self, name: str) -> None:
        """Write down a container that is about to be made."""
        with self._lock:
            self._record = replace(self._record, containers=(*self._record.containers, name))
            self._write()

    def remove(self) -> None:
        """End whatever of this run still lives, and delete the folder unless it is kept."""
        _remove(self.path, self._record)

    def _write(self) -> None:
        new = self.path / f"{_RECORD}.new"
        new.write_text(self._record.to_json())
        new.replace(self.path / _RECORD)


def sweep(progress: Callable[[str], None], parent: Path) -> None:
    """Remove the folders whose owner is dead, but for kept ones, with everything that still runs in them."""
    for path in sorted(parent.iterdir()):
        record = read(path)
        if record and not processes.is_alive(record.owner):
            progress(f"cleaning up after a run that was killed (process {record.owner.pid}) …")
            _remove(path, record)


def read(path: Path) -> Record | None:
    """The record, or None in the moment before it is written and after the folder is gone."""
    try:
        return Record.from_json((path / _RECORD).read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove(path: Path, record: Record) -> None:
    _end_processes(path, record)
    for name in record.containers:
        docker.remove(name)
    if record.is_kept:
        (path / _RECORD).unlink(missing_ok=True)
        return
    # The record goes last: until then an interrupted removal is taken up again by the next run.
    for entry in path.glob("*/"):
        shutil.rmtree(entry, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


def _end_processes(path: Path, record: Record) -> None:
    living = [child for child in record.children if processes.is_alive(child.process)]
    known = processes.family(child.process for child in living)
    for child in living:
        with suppress(ProcessLookupError):
            os.kill(child.process.pid, child.quit_signal)
    processes.end(processes.inside(path) - known)
    processes.end(known, grace_seconds=_GRACE_SECONDS)


def parent_folder(temporary: Path | None = None) -> Path:
    """Where this user's runs are: below the folder for temporary files, and nobody else can write to it."""
    path = (temporary or _temporary()) / f"outbox-local-{os.geteuid()}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o711)
    found = path.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    if not is_ours:
        raise LocalServiceError(
            f"{path} belongs to somebody else or others may write to it; remove it or set TMPDIR"
        )
    return path


def _temporary() -> Path:
    """The folder for temporary files, unless the servers' account could not get into it."""
    path = Path(tempfile.gettempdir()).resolve()
    passable = all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))
    return path if passable or os.geteuid() != 0 else Path("/tmp").resolve()  # noqa: S108 - made safe by parent_folder
