"""A local cluster that outlives the command that asked for it: a process of its own keeps it until `down`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from outbox_cli.local import processes, runfolder
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.processes import Process
from tests.cluster import cgroups
from tests.cluster.local import LocalCluster, local_cluster

KEEP = "keep"
"""The command that the keeper is started with; not for people."""
_TREE = Path(__file__).parent.parent.parent
_DOWN_SECONDS = 180.0


@dataclass(frozen=True)
class Kept:
    """A cluster that is kept."""

    keeper: Process
    """The process that does; its end is the cluster's."""
    cluster: LocalCluster


def find() -> LocalCluster | None:
    """The cluster that is kept, if one is."""
    found = read()
    return found.cluster if found else None


def read() -> Kept | None:
    """The same with its keeper."""
    try:
        found = json.loads(_notice().read_text())
    except FileNotFoundError:
        return None
    keeper = Process(**found["keeper"])
    if not processes.is_alive(keeper):
        return None
    return Kept(keeper, LocalCluster.described(found["cluster"]))


def up(progress: Callable[[str], None]) -> LocalCluster:
    """The cluster that is kept; started where none is."""
    if found := find():
        return found
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", KEEP],
        cwd=_TREE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # It is to stay when the terminal closes.
        start_new_session=True,
    )
    assert keeper.stdout is not None
    try:
        # It closes its end when the cluster is up, or when it has failed.
        for line in keeper.stdout:
            progress(line.rstrip())
    except KeyboardInterrupt:
        keeper.terminate()
        keeper.wait()
        raise
    finally:
        keeper.stdout.close()
    if found := find():
        # It lives on: there is nobody to wait for.
        keeper.returncode = 0
        return found
    raise LocalServiceError("the cluster did not start; the reason is above")


def down(progress: Callable[[str], None]) -> bool:
    """End the cluster that is kept, and clean up after those that were killed; whether there was one."""
    found = read()
    if found:
        os.kill(found.keeper.pid, signal.SIGTERM)
        processes.end({found.keeper}, grace_seconds=_DOWN_SECONDS)
    runfolder.sweep(progress, runfolder.parent_folder())
    cgroups.sweep()
    _notice().unlink(missing_ok=True)
    return found is not None


def keep(progress: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> None:
    """Start a cluster, say so in a notice, and keep it until a signal comes."""
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, _leave)
    with local_cluster(progress, environment) as started, _announced(started):
        _close_output()
        while True:
            signal.pause()


def _leave(sign: int, frame: FrameType | None) -> NoReturn:
    # Once is enough: another one must not interrupt what this one began.
    for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(0)


def _close_output() -> None:
    """Whoever reads our output waits for its end, and nobody is left to read it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def _announced(started: LocalCluster) -> Iterator[None]:
    new = _notice().with_suffix(".new")
    notice = {"keeper": asdict(processes.current()), "cluster": started.description()}
    new.write_text(json.dumps(notice))
    new.replace(_notice())
    try:
        yield
    finally:
        _notice().unlink(missing_ok=True)


def _notice() -> Path:
    return runfolder.parent_folder() / "cluster.json"
