"""A local cluster's end: by order, and by being killed, it leaves nothing on the machine."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from outbox_cli.local import processes
from tests.cluster import kept, kind
from tests.cluster.cgroups import ControlGroup
from tests.cluster.choice import Local, choose
from tests.cluster.host import find_host
from tests.cluster.images import scratch_image
from tests.cluster.kept import Kept
from tests.cluster.programs import find_kubectl, go_program
from tests.e2e.kubectl import Kubectl, until

_IMAGE = "outbox.dev/probe:local"
_SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_CGROUPS = Path("/sys/fs/cgroup")
_COMMAND_SECONDS = 900


@pytest.fixture(autouse=True)
def _only_where_it_is_local(request: pytest.FixtureRequest, progress: Callable[[str], None]) -> None:
    if choose(request.config.getoption("--cluster"), kind.works) != Local():
        pytest.skip("this run has its cluster from elsewhere")
    find_host(progress)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, so that no other cluster of this machine is concerned."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-place-"))
    # Root's servers are kept where an account with fewer rights can get to.
    folder.chmod(0o711)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    _command("down")
    shutil.rmtree(folder)


def _command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", *arguments],
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class _Traces:
    """What the host has of a cluster."""

    processes: frozenset[int] = frozenset()
    """Those in its network, and those that work in its folders."""
    links: frozenset[str] = frozenset()
    cgroups: frozenset[Path] = frozenset()
    folders: frozenset[Path] = frozenset()


@dataclass(frozen=True)
class _Watched:
    """A cluster with a pod, and the names by which its traces are found when it is gone."""

    kept: Kept
    network: str
    place: Path

    def traces(self) -> _Traces:
        run = self.kept.cluster.folder.name
        link = run.replace("run-", "outbox-")
        group = ControlGroup(self.kept.keeper, run).name
        networked = {int(pid.name) for pid in Path("/proc").glob("[0-9]*") if _network(pid) == self.network}
        return _Traces(
            frozenset(networked | {process.pid for process in processes.inside(self.place)}),
            frozenset({link} & {path.name for path in Path("/sys/class/net").iterdir()}),
            frozenset(_CGROUPS.glob(f"**/{group}")),
            frozenset(path for path in self.place.glob("*/*") if not path.name.endswith(".lock")),
        )

    def has_left_nothing(self) -> bool:
        """Whether there is no trace of it, where the kernel has its time for the network.

        It takes one away some time after the last process in it has ended, and the cable with it.
        """
        left = self.traces()
        until("the kernel has taken its network away", lambda: not self.traces().links)
        return replace(left, links=frozenset()) == _Traces()


def _network(process: Path) -> str | None:
    try:
        return str((process / "ns" / "net").readlink())
    except OSError:
        return None


def _host_state() -> tuple[dict[str, str], bool, bool]:
    """What a cluster must leave alone: the kernel's settings, the host's mounts and its packet filter."""
    rules = subprocess.run(
        ["/usr/sbin/iptables-save"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    settings = {name: Path("/proc/sys", name).read_text() for name in _SETTINGS}
    mounts = Path("/proc/mounts").read_text()
    return settings, "kubelet" in mounts or "k8s.io" in mounts, "KUBE-" in rules


def _start(place: Path, progress: Callable[[str], None]) -> _Watched:
    progress("starting a cluster to see it end …")
    _command("up", "--cluster=local")
    found = kept.read()
    assert found is not None
    program = go_program(Path(__file__).parent / "probe.go", os.environ, progress)
    scratch_image(_IMAGE, program, place / "probe.tar")
    _command("load", str(place / "probe.tar"))
    (place / "probe.tar").unlink()
    kubectl = Kubectl(find_kubectl(os.environ, progress), Path(_command("kubeconfig").strip()))
    kubectl("run", "server", f"--image={_IMAGE}", "--image-pull-policy=IfNotPresent")
    kubectl("wait", "--for=condition=Ready", "--timeout=90s", "pod/server")
    network = _network(Path(f"/proc/{found.cluster.node.first.pid}"))
    assert network is not None
    watched = _Watched(found, network, place)
    seen = watched.traces()
    assert len(seen.processes) > 8
    assert seen.links
    assert seen.cgroups
    assert seen.folders
    return watched


def test_down_leaves_nothing_behind(place: Path, progress: Callable[[str], None]) -> None:
    before = _host_state()
    watched = _start(place, progress)
    assert _host_state() == before
    _command("down")
    assert watched.has_left_nothing(), watched.traces()
    assert _host_state() == before


def test_what_a_killed_cluster_left_is_cleaned_up_by_the_next_command(
    place: Path, progress: Callable[[str], None]
) -> None:
    watched = _start(place, progress)
    os.kill(watched.kept.keeper.pid, signal.SIGKILL)
    until("its keeper is gone", lambda: kept.read() is None)
    assert watched.traces().processes
    _command("down")
    assert watched.has_left_nothing(), watched.traces()


def test_a_cluster_whose_every_process_was_killed_is_cleaned_up_too(
    place: Path, progress: Callable[[str], None]
) -> None:
    watched = _start(place, progress)
    for pid in (watched.kept.keeper.pid, *watched.traces().processes):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until("its processes are gone", lambda: not watched.traces().processes)
    _command("down")
    assert watched.has_left_nothing(), watched.traces()
