"""A real Kubernetes cluster of one node on this machine, of programs from package registries alone."""

import json
import os
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from outbox_cli.local import processes, runfolder
from outbox_cli.local.daemon import Daemon
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.processes import Process
from outbox_cli.local.runfolder import RunFolder
from tests.cluster import cgroups, configuration, images, storage
from tests.cluster.cgroups import ControlGroup
from tests.cluster.configuration import ADMINISTRATOR, NODE, SANDBOX_IMAGE, USERS, Command, Layout
from tests.cluster.host import find_host
from tests.cluster.machine import Machine, Namespaces
from tests.cluster.networks import KUBERNETES_ADDRESS, free_link, taken_networks
from tests.cluster.programs import find_programs
from tests.operator.control_plane.certificates import Authority

_START_SECONDS = 180
_PROBE_SECONDS = 5
_KUBECTL_SECONDS = 120
_ROOMY_BYTES = 12 << 30


@dataclass(frozen=True)
class LocalCluster:
    """A cluster that runs on this machine."""

    kubeconfig: Path
    """How its administrator gets in, from this machine."""
    folder: Path
    """All that it keeps on the disk, each program's log among it (`NAME/log`); gone when it is down."""
    node: Namespaces
    _running: ExitStack = field(default_factory=ExitStack, repr=False)

    def load(self, archive: Path) -> None:
        """Give it the images of an archive, which pods can then use (`imagePullPolicy: IfNotPresent`)."""
        images.load(self.node, archive)

    def description(self) -> dict[str, Any]:
        """What another process has to know of it, in plain values."""
        return {
            "kubeconfig": str(self.kubeconfig),
            "folder": str(self.folder),
            "first": asdict(self.node.first),
            "path": self.node.path,
        }

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> "LocalCluster":
        """The cluster of a description; to end it is for the process that started it."""
        node = Namespaces(Process(**description["first"]), description["path"])
        return cls(Path(description["kubeconfig"]), Path(description["folder"]), node)

    def down(self) -> None:
        """End it and leave nothing behind."""
        self._running.close()


@contextmanager
def local_cluster(
    progress: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> Iterator[LocalCluster]:
    """Start a cluster and wait until its node takes pods; end it afterwards."""
    host = find_host(progress)
    programs = find_programs(environment, progress)
    parent = runfolder.parent_folder()
    runfolder.sweep(progress, parent)
    cgroups.sweep()
    progress("starting a Kubernetes cluster of one node …")
    began = time.monotonic()
    with ExitStack() as running:
        run = RunFolder.create(parent)
        running.callback(run.remove)
        # Pods are for root to start.
        run.account = None
        cgroup = ControlGroup(processes.current(), run.path.name)
        running.callback(cgroup.remove)
        cgroup.create()
        link = free_link(taken_networks(host.path))
        machine = Machine(run, host, programs.pause, link)
        machine.start(running)
        layout = Layout(
            programs, host, link.node, run.subfolder("settings"), run.subfolder("data"), cgroup.name
        )
        _start(layout, machine, running)
        progress(f"Kubernetes node ready in {time.monotonic() - began:.1f} s")
        yield LocalCluster(layout.kubeconfig(ADMINISTRATOR), run.path, machine.namespaces, running)


def _start(layout: Layout, machine: Machine, running: ExitStack) -> None:
    authority = _authority(layout)
    for name, text in configuration.files(layout, authority).items():
        (layout.folder / name).write_text(text)
    api = _Api(f"https://{layout.address}:{configuration.API_PORT}", layout.folder)

    def daemon(name: str, command: Command) -> Daemon:
        made = machine.daemon(name, *command)
        # Before it starts: a start that fails half-way has to be ended too.
        running.callback(made.kill)
        made.start()
        return made

    _make_image_store(layout, machine.namespaces)
    containerd = daemon("containerd", configuration.containerd(layout))
    etcd = daemon("etcd", configuration.etcd(layout))
    health = f"http://{layout.address}:{configuration.ETCD_HEALTH_PORT}/health"
    etcd.wait_until(lambda: _get(health) is not None, _START_SECONDS)
    apiserver = daemon("kube-apiserver", configuration.apiserver(layout, authority))
    containerd.wait_until(lambda: _answers(machine.namespaces), _START_SECONDS)
    archive = layout.data / "pause.tar"
    images.load(machine.namespaces, images.scratch_image(SANDBOX_IMAGE, layout.programs.pause, archive))
    apiserver.wait_until(lambda: api.get("/readyz") is not None, _START_SECONDS)

    controllers = daemon("kube-controller-manager", configuration.controller_manager(layout, authority))
    scheduler = daemon("kube-scheduler", configuration.scheduler(layout))
    kubelet = daemon("kubelet", configuration.kubelet(layout))
    proxy = daemon("kube-proxy", configuration.proxy(layout))
    coredns = daemon("coredns", configuration.coredns(layout))
    _make_volumes(layout)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    scheduling = f"https://{layout.address}:{configuration.SCHEDULER_PORT}/healthz"
    proxying = f"http://{layout.address}:{configuration.PROXY_HEALTH_PORT}/healthz"
    resolving = f"http://{layout.address}:{configuration.DNS_READY_PORT}/ready"
    kubelet.wait_until(lambda: _is_ready(api.get(f"/api/v1/nodes/{NODE}")), _START_SECONDS)
    controllers.wait_until(lambda: api.get(account) is not None, _START_SECONDS)
    # Its certificate is one that it made for itself.
    scheduler.wait_until(lambda: _get(scheduling, _trusting()) is not None, _START_SECONDS)
    proxy.wait_until(lambda: _get(proxying) is not None, _START_SECONDS)
    coredns.wait_until(lambda: _get(resolving) is not None, _START_SECONDS)


def _authority(layout: Layout) -> Authority:
    url = f"https://{layout.address}:{configuration.API_PORT}"
    authority = Authority(layout.folder, str(layout.address), str(KUBERNETES_ADDRESS), "kubernetes.default")
    for user, group in USERS.items():
        authority.issue(user, group)
        layout.kubeconfig(user).write_text(authority.kubeconfig(url, user))
    return authority


def _make_image_store(layout: Layout, node: Namespaces) -> None:
    """In memory where there is plenty: images are tens of thousands of files to write, and to remove."""
    layout.image_store.mkdir()
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if available and int(available[1]) << 10 > _ROOMY_BYTES:
        node.run("mount", "-t", "tmpfs", "-o", "size=50%,mode=711", "outbox", layout.image_store)


def _make_volumes(layout: Layout) -> None:
    folder = layout.data / "volumes"
    storage.make_folders(folder)
    done = subprocess.run(
        [
            layout.programs.kubernetes / "kubectl",
            f"--kubeconfig={layout.kubeconfig(ADMINISTRATOR)}",
            "create",
            "--filename=-",
        ],
        env={"HOME": str(layout.data)},
        input=json.dumps(storage.volumes(folder)),
        capture_output=True,
        text=True,
        timeout=_KUBECTL_SECONDS,
        check=False,
    )
    if done.returncode:
        raise LocalServiceError(f"kubectl could not create volumes:\n{done.stderr}")


def _answers(node: Namespaces) -> bool:
    try:
        node.run("ctr", f"--address={configuration.CONTAINERD}", "plugins", "list", "id==cri")
    except LocalServiceError:
        return False
    return True


def _is_ready(node: bytes | None) -> bool:
    if node is None:
        return False
    found: dict[str, Any] = json.loads(node)
    conditions = found.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


class _Api:
    """The API, as far as a start needs it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._context = Authority.context(folder, ADMINISTRATOR)

    def get(self, path: str) -> bytes | None:
        return _get(f"{self._url}{path}", self._context)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _get(url: str, context: ssl.SSLContext | None = None) -> bytes | None:
    """What is there, or None where nobody answers, or not with that."""
    # Without an empty ProxyHandler, a proxy in the environment would be asked about the node.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=_PROBE_SECONDS) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except (OSError, HTTPException):
        return None
