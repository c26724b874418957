"""The chart's values: what whoever installs it may choose, what it means, and what is refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

Namespace = Annotated[str, Field(pattern=_LABEL, max_length=63)]
Name = Annotated[str, Field(pattern=_NAME, max_length=253)]
OptionalName = Annotated[str, Field(pattern=rf"^$|{_NAME}", max_length=253)]
ReleaseName = Annotated[str, Field(pattern=rf"^$|{_LABEL}", max_length=52)]
"""Room for what is put behind it."""
Repository = Annotated[str, Field(pattern=r"^[^\s:@]+(:[0-9]+/[^\s:@]+)?$")]
Tag = Annotated[str, Field(pattern=r"^$|^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
Digest = Annotated[str, Field(pattern=r"^$|^sha256:[0-9a-f]{64}$")]
Host = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_.:-]+(/[0-9]{1,3})?$", max_length=255)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]
Texts = dict[str, str]
Fragment = dict[str, Any]
"""A part of a manifest, which the API server checks."""


class Group(BaseModel):
    """Values that belong together."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
    )


class LocalReference(Group):
    """A Secret by its name."""

    name: Name
    """Its name."""


class RelayImage(Group):
    """An image."""

    repository: Repository = "outbox-relay"
    """The image of relays whose OutboxRelay names none, with its registry. An upgrade changes it for new
    relays; those that run keep theirs until their OutboxRelay changes."""
    tag: Tag = ""
    """Its tag; the chart's appVersion where it is empty."""
    digest: Digest = ""
    """Its digest, `sha256:…`, instead of the tag."""


class OperatorImage(Group):
    """An image."""

    repository: Repository = "outbox-operator"
    """The operator's image, with its registry."""
    tag: Tag = ""
    """Its tag; the chart's appVersion where it is empty."""
    digest: Digest = ""
    """Its digest, `sha256:…`, instead of the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes pull it."""


class Relay(Group):
    """What relays have in common."""

    image: RelayImage = RelayImage()
    """The image of relays."""


class Crds(Group):
    """The CustomResourceDefinitions."""

    install: bool = True
    """Install the CustomResourceDefinitions, and upgrade them with the chart. One release in a cluster
    does."""
    keep: bool = True
    """Keep them, and with them every OutboxRelay and OutboxListener, when the release is uninstalled."""


class Rbac(Group):
    """Who may do what."""

    create: bool = True
    """Make the roles of the operator: a ClusterRole, or with `watchNamespaces` a Role in each of them."""
    user_roles: bool = True
    """Let who may view, edit or administer a namespace do so with its OutboxRelays and OutboxListeners. It
    goes with the CustomResourceDefinitions: nothing is made where `crds.install` is false."""
    secret_names: list[Name] = []
    """The Secrets that OutboxRelays refer to. Where they are listed, the operator may watch those and no
    others, so that it cannot find out which Secrets there are. The Secrets that it makes itself have names
    that nobody knows beforehand: it may get, make, change and delete a Secret by its name in any case, and
    never list them."""


class ServiceAccount(Group):
    """Whom the operator is to the API server."""

    create: bool = True
    """Make the ServiceAccount."""
    name: OptionalName = ""
    """Its name; that of the release where it is empty. With `create: false`, one that is there already."""
    annotations: Texts = {}
    """Its annotations."""


class OperatorSettings(Group):
    """Each is the environment variable `OUTBOX_…` of the operator."""

    hands: Annotated[int, Field(ge=1, le=1000)] = 64
    """How many resources are looked at at the same time; at most a quarter of them are of one namespace."""
    drift_seconds: PositiveSeconds = 30
    """How often the objects on a broker are compared with what they should be."""
    tier_grace_seconds: Seconds = 300
    """How long a delay tier is kept that no listener needs any more."""
    user_grace_seconds: Seconds = 60
    """How long the broker user of a deleted resource stays."""
    give_up_seconds: Seconds = 300
    """How long a deletion waits for a broker that cannot be reached."""
    count_seconds: Seconds = 10
    """How late a broker may count the messages in a queue."""
    installation: Annotated[str, Field(max_length=255)] = ""
    """The mark on what the operator makes on a broker; the uid of its Lease where it is empty. Set it to the
    former one after the Lease was deleted, and to one value in clusters that share their queues."""
    allowed_hosts: Annotated[list[Host], Field(json_schema_extra={"uniqueItems": True})] = []
    """The hosts of brokers, management APIs and databases that resources may name, as names, `*.NAME`,
    addresses or networks such as `10.0.0.0/8`; all of them where there are none. Who may write OutboxRelays
    can otherwise have the operator connect to whatever it reaches."""
    administrator_secrets: Annotated[list[Name], Field(json_schema_extra={"uniqueItems": True})] = []
    """The Secrets in the release's namespace that OutboxRelays may name as `administratorSecretRef`, each
    with an administrator of a broker and a key `namespaces` that says who may use it for which virtual host.
    The operator may read these."""
    require_tls: bool = False
    """Refuse brokers that are entered without TLS, and databases whose URL does not have `sslmode=require`,
    `verify-ca` or `verify-full`, nor a `caSecretRef`. By default Postgres is entered with `sslmode=prefer`:
    without TLS if the server has none, and without a look at its certificate."""
    network_policies: bool = False
    """Make a NetworkPolicy for the pods of relays and workers: nobody reaches them but for metrics
    and probes."""


class Log(Group):
    """What the operator writes."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What is logged."""
    format: Literal["text", "json"] = "json"
    """How it is written."""


class PodDisruptionBudget(Group):
    """What may be away."""

    enabled: bool = True
    """Let a drain of nodes take one pod of the operator at a time; made where there are several replicas."""


class NetworkPolicy(Group):
    """Who reaches the operator, and what it reaches."""

    enabled: bool = False
    """Make a NetworkPolicy for the operator's pods: nobody reaches more of them than probes and metrics. Most
    networks let a node's kubelet reach its pods in any case."""
    metrics_from: list[Fragment] = []
    """Who may read probes and metrics, as `from` of a NetworkPolicy says it; everybody where it is empty:
    `[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]`."""
    egress: list[Fragment] = []
    """What the operator may reach, as `egress` of a NetworkPolicy says it; everything where it is empty. It
    needs the API server, the DNS, the databases, and the management APIs of the brokers."""


class PodMonitor(Group):
    """How Prometheus finds the operator."""

    enabled: bool = False
    """Make a PodMonitor for the operator's metrics; Prometheus' operator has to be installed. Those of relays
    and workers are made by the operator itself."""
    labels: Texts = {}
    """Labels by which Prometheus selects it."""
    interval: Annotated[str, Field(pattern=r"^$|^([0-9]+(ms|s|m|h))+$")] = ""
    """How often metrics are read; as Prometheus has it where it is empty."""


class PrometheusRule(Group):
    """Alerts."""

    enabled: bool = False
    """Make a PrometheusRule with alerts on relays, workers and the operator; each says what to do."""
    labels: Texts = {}
    """Labels by which Prometheus selects it."""


class Dashboards(Group):
    """Grafana."""

    enabled: bool = False
    """Make a ConfigMap with dashboards for Grafana: relays, workers and the operator."""
    labels: Texts = {"grafana_dashboard": "1"}
    """Labels by which Grafana's sidecar finds it."""
    annotations: Texts = {}
    """Its annotations, by which some sidecars choose a folder."""


class Values(Group):
    """All of them."""

    image: OperatorImage = OperatorImage()
    """The operator's image."""
    image_pull_secrets: list[LocalReference] = []
    """Secrets of the release's namespace with which the operator's image is pulled: `[{name: registry}]`. The
    pods of relays and workers have those of their own namespace that `template.imagePullSecrets` of their
    resource names."""
    relay: Relay = Relay()
    """What relays have in common."""
    replicas: Annotated[int, Field(ge=0)] = 2
    """How many operators run. One leads, the others stand by."""
    watch_namespaces: Annotated[list[Namespace], Field(json_schema_extra={"uniqueItems": True})] = []
    """The namespaces that the operator looks after; the whole cluster where there are none."""
    crds: Crds = Crds()
    """The CustomResourceDefinitions."""
    rbac: Rbac = Rbac()
    """Who may do what."""
    service_account: ServiceAccount = ServiceAccount()
    """Whom the operator is to the API server."""
    settings: OperatorSettings = OperatorSettings()
    """How the operator works."""
    log: Log = Log()
    """What the operator writes."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """How many pods may be away when nodes are drained."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who reaches the operator, and what it reaches."""
    pod_monitor: PodMonitor = PodMonitor()
    """How Prometheus finds the operator."""
    prometheus_rule: PrometheusRule = PrometheusRule()
    """Alerts."""
    dashboards: Dashboards = Dashboards()
    """Dashboards for Grafana."""
    resources: Fragment = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "768Mi"}}
    """What the operator's container asks for, and may not exceed."""
    pod_labels: Texts = {}
    """More labels of the operator's pods."""
    pod_annotations: Texts = {}
    """Annotations of the operator's pods."""
    extra_env: list[Fragment] = []
    """More environment variables of the operator, such as a proxy's: `[{name: HTTPS_PROXY, value: …}]`."""
    node_selector: Texts = {}
    """The nodes that the operator may run on."""
    tolerations: list[Fragment] = []
    """The taints of nodes that it tolerates."""
    affinity: Fragment = {}
    """Where it runs; where it is empty, replicas run on different nodes as far as that is possible."""
    topology_spread_constraints: list[Fragment] = []
    """How replicas are spread; they select the operator's pods where they have no labelSelector."""
    priority_class_name: OptionalName = ""
    """How important its pods are."""
    name_override: ReleaseName = ""
    """What objects are called, behind the release's name; the chart's name where it is empty."""
    fullname_override: ReleaseName = ""
    """What objects are called, instead of a name that follows from the release's."""
