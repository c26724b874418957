"""What the programs of a cluster are told: pure functions from a layout to files and command lines."""

import json
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tests.cluster.host import Host
from tests.cluster.networks import BRIDGE, PODS, SERVICES
from tests.cluster.programs import Programs
from tests.operator.control_plane.certificates import Authority

NODE = "node"
"""The node's name."""
SANDBOX_IMAGE = "outbox.dev/pause:local"
CONTAINERD = "/run/containerd/containerd.sock"
"""Below the node's own /run: the path of a socket must be short."""

ADMINISTRATOR = "administrator"
CONTROLLERS = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
PROXY = "system:kube-proxy"
KUBELET = f"system:node:{NODE}"
USERS = {
    ADMINISTRATOR: "system:masters",
    CONTROLLERS: "system:kube-controller-manager",
    SCHEDULER: "system:kube-scheduler",
    PROXY: "system:node-proxier",
    KUBELET: "system:nodes",
}
"""Who gets in by certificate, each with the group that makes it what it is."""

API_PORT, ETCD_PORT, ETCD_HEALTH_PORT, DNS_READY_PORT = 6443, 2379, 2381, 8181
SCHEDULER_PORT, PROXY_HEALTH_PORT = 10259, 10256

Command = list[str | Path]


@dataclass(frozen=True)
class Layout:
    """Where everything of one cluster is."""

    programs: Programs
    host: Host
    address: IPv4Address
    """The node's."""
    folder: Path
    """Of the certificates and settings."""
    data: Path
    """Of what containerd and the kubelet keep."""
    cgroup: str
    """The control group of the pods."""

    @property
    def image_store(self) -> Path:
        """Where containerd keeps images and what containers write."""
        return self.data / "containerd"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"


def etcd(layout: Layout) -> Command:
    client, peer = f"http://127.0.0.1:{ETCD_PORT}", "http://127.0.0.1:2380"
    return [
        layout.programs.etcd,
        "--name=cluster",
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=cluster={peer}",
        f"--listen-metrics-urls=http://{layout.address}:{ETCD_HEALTH_PORT}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def apiserver(layout: Layout, authority: Authority) -> Command:
    kubelet_client = layout.folder / f"{ADMINISTRATOR}.pem"
    return [
        layout.programs.kubernetes / "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
        f"--advertise-address={layout.address}",
        f"--secure-port={API_PORT}",
        f"--cert-dir={layout.folder}",
        f"--client-ca-file={authority.file}",
        f"--tls-cert-file={authority.server_file}",
        f"--tls-private-key-file={authority.server_file}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={authority.service_account_key}",
        f"--service-account-signing-key-file={authority.service_account_key}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--kubelet-client-certificate={kubelet_client}",
        f"--kubelet-client-key={kubelet_client}",
        # Nobody resolves the node's name.
        "--kubelet-preferred-address-types=InternalIP",
        "--endpoint-reconciler-type=lease",
        "--allow-privileged=true",
        # The etcd of PyPI is too old for them: it does not tell how far a watch has come.
        "--feature-gates=WatchList=false,SizeBasedListCostEstimate=false",
        "--profiling=false",
    ]


def controller_manager(layout: Layout, authority: Authority) -> Command:
    return [
        layout.programs.kubernetes / "kube-controller-manager",
        f"--kubeconfig={layout.kubeconfig(CONTROLLERS)}",
        f"--root-ca-file={authority.file}",
        f"--service-account-private-key-file={authority.service_account_key}",
        "--use-service-account-credentials=true",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--profiling=false",
    ]


def scheduler(layout: Layout) -> Command:
    return [
        layout.programs.kubernetes / "kube-scheduler",
        f"--kubeconfig={layout.kubeconfig(SCHEDULER)}",
        f"--bind-address={layout.address}",
        "--leader-elect=false",
        "--profiling=false",
    ]


def containerd(layout: Layout) -> Command:
    return [
        "containerd",
        f"--config={layout.folder / 'containerd.toml'}",
        f"--root={layout.image_store}",
        "--state=/run/containerd",
        f"--address={CONTAINERD}",
        "--log-level=warn",
    ]


def kubelet(layout: Layout) -> Command:
    return [
        layout.programs.kubernetes / "kubelet",
        f"--config={layout.folder / 'kubelet.json'}",
        f"--kubeconfig={layout.kubeconfig(KUBELET)}",
        f"--root-dir={layout.data / 'kubelet'}",
        f"--cert-dir={layout.data / 'kubelet-certificates'}",
        f"--hostname-override={NODE}",
        f"--node-ip={layout.address}",
    ]


def proxy(layout: Layout) -> Command:
    return [layout.programs.kubernetes / "kube-proxy", f"--config={layout.folder / 'kube-proxy.json'}"]


def coredns(layout: Layout) -> Command:
    return [layout.programs.coredns, "-conf", layout.folder / "Corefile"]


def files(layout: Layout, authority: Authority) -> dict[str, str]:
    """The settings, by the names of their files in the layout's folder."""
    return {
        "containerd.toml": _containerd(layout),
        "kubelet.json": json.dumps(_kubelet(layout, authority)),
        "kube-proxy.json": json.dumps(_proxy(layout)),
        "Corefile": _corefile(layout),
        "10-pods.conflist": json.dumps(_pod_network()),
        # What a pod that wants its node's DNS gets: the host's may be out of reach from here.
        "resolv.conf": f"nameserver {layout.address}\n",
    }


def _containerd(layout: Layout) -> str:
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]

[{plugin}]
sandbox_image = "{SANDBOX_IMAGE}"
# A machine may lack the right to lower it (CAP_SYS_RESOURCE), and runc would not start a pod.
restrict_oom_score_adj = true

[{plugin}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{plugin}.containerd.runtimes.runc.options]
SystemdCgroup = false

[{plugin}.cni]
bin_dir = "{layout.host.plugins}"
conf_dir = "{layout.folder}"
"""


def _kubelet(layout: Layout, authority: Authority) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority.file)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "clusterDNS": [str(layout.address)],
        "clusterDomain": "cluster.local",
        "resolvConf": str(layout.folder / "resolv.conf"),
        "podLogsDir": str(layout.data / "logs"),
        "volumePluginDir": str(layout.data / "volume-plugins"),
        # An image that was loaded cannot be pulled again, and the host's disk is not ours to keep free.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%"},
        "oomScoreAdj": 0,
    }


def _proxy(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig(PROXY))},
        "hostnameOverride": NODE,
        "bindAddress": str(layout.address),
        "healthzBindAddress": f"{layout.address}:{PROXY_HEALTH_PORT}",
        "mode": "iptables",
        "clusterCIDR": str(PODS),
        # These belong to the kernel as a whole.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }


def _corefile(layout: Layout) -> str:
    zones = "cluster.local in-addr.arpa ip6.arpa"
    return f"""{zones} {{
    bind {layout.address}
    errors
    ready {layout.address}:{DNS_READY_PORT}
    kubernetes {zones} {{
        kubeconfig {layout.kubeconfig(ADMINISTRATOR)}
        pods insecure
    }}
}}
# There is no way out of the cluster: what is not in it does not exist.
. {{
    bind {layout.address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _pod_network() -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isDefaultGateway": True,
                # A pod may reach itself by its Service.
                "hairpinMode": True,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": str(PODS)}]]},
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
