"""A private Kubernetes control plane without nodes: etcd and kube-apiserver on free ports of 127.0.0.1.

It has no controllers: a Deployment makes no pods, and a namespace that is deleted stays in Terminating.
"""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from ssl import SSLContext

from outbox_cli.local import runfolder
from outbox_cli.local.daemon import Daemon
from outbox_cli.local.errors import PortTakenError
from outbox_cli.local.ports import free_ports
from outbox_cli.local.runfolder import RunFolder
from tests.operator.control_plane.certificates import Authority
from tests.operator.control_plane.programs import Programs, find_programs

ADMINISTRATOR = "administrator"

_START_SECONDS = 120
_PROBE_SECONDS = 5
_TRIES = 3


@dataclass(frozen=True)
class ControlPlane:
    """A control plane that runs."""

    url: str
    """Where its API is."""
    folder: Path
    """Where its certificates are; gone when it stops."""
    programs: Programs
    """What it consists of."""

    @property
    def kubeconfig(self) -> Path:
        """How its administrator gets in."""
        return self.folder / "kubeconfig"

    @cached_property
    def context(self) -> SSLContext:
        """The same for Python."""
        return Authority.context(self.folder, ADMINISTRATOR)


@contextmanager
def control_plane(
    progress: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> Iterator[ControlPlane]:
    """Start one, of the programs that `environment` leads to, and leave nothing of it behind."""
    programs = find_programs(environment, progress)
    parent = runfolder.parent_folder()
    runfolder.sweep(progress, parent)
    progress("starting etcd and kube-apiserver …")
    began = time.monotonic()
    with ExitStack() as running:
        run = RunFolder.create(parent)
        running.callback(run.remove)
        # The programs are in a folder of the user's own, where the account for servers cannot get in.
        run.account = None
        started = _start(programs, run, running)
        progress(f"etcd and kube-apiserver ready in {time.monotonic() - began:.1f} s")
        yield started


def _start(programs: Programs, run: RunFolder, running: ExitStack) -> ControlPlane:
    folder = run.subfolder("kubernetes")
    authority = Authority(folder)
    authority.issue(ADMINISTRATOR, "system:masters")
    for tries_left in reversed(range(_TRIES)):
        ports = free_ports(3)
        started = ControlPlane(f"https://127.0.0.1:{ports[2]}", folder, programs)
        try:
            _boot(_etcd(programs, run, ports), f"http://127.0.0.1:{ports[0]}/health", None, running)
            apiserver = _apiserver(programs, run, ports, authority)
            _boot(apiserver, f"{started.url}/readyz", started.context, running)
        except PortTakenError:
            if not tries_left:
                raise
        else:
            break
    started.kubeconfig.write_text(authority.kubeconfig(started.url, ADMINISTRATOR))
    return started


def _boot(daemon: Daemon, probe: str, context: SSLContext | None, running: ExitStack) -> None:
    # Before it starts: a start that fails half-way has to be ended too.
    running.callback(daemon.discard)
    daemon.start()
    daemon.wait_until(lambda: _answers(probe, context), _START_SECONDS)


def _etcd(programs: Programs, run: RunFolder, ports: list[int]) -> Daemon:
    client, peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
    folder = run.subfolder(f"etcd-{ports[0]}")
    command: list[str | Path] = [
        programs.etcd,
        "--name=tests",
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=tests={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]
    return Daemon("etcd", run, command, folder, {}, folder / "log")


def _apiserver(programs: Programs, run: RunFolder, ports: list[int], authority: Authority) -> Daemon:
    folder = run.subfolder(f"kube-apiserver-{ports[2]}")
    command: list[str | Path] = [
        programs.apiserver,
        f"--etcd-servers=http://127.0.0.1:{ports[0]}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports[2]}",
        f"--cert-dir={folder}",
        f"--client-ca-file={authority.file}",
        f"--tls-cert-file={authority.server_file}",
        f"--tls-private-key-file={authority.server_file}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={authority.service_account_key}",
        f"--service-account-signing-key-file={authority.service_account_key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Its own endpoints: there is no Service of it to be reached by.
        "--endpoint-reconciler-type=none",
        # Nobody makes the default service account of a namespace, which the plugin would wait for.
        "--disable-admission-plugins=ServiceAccount",
        "--enable-priority-and-fairness=false",
        # The etcd of PyPI is too old for it: a watch without a resourceVersion would fail after a while.
        "--feature-gates=WatchList=false",
        "--profiling=false",
    ]
    return Daemon("kube-apiserver", run, command, folder, {}, folder / "log")


def _answers(url: str, context: SSLContext | None) -> bool:
    # Without an empty ProxyHandler, a proxy in the environment would be asked about 127.0.0.1.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=_PROBE_SECONDS) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (OSError, HTTPException):
        return False
