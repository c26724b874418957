"""Manifests, good and bad: the same tables for the API server and for the types."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Manifest = dict[str, Any]

GONE = object()
"""Instead of a value: the field is left out."""

_HEAD = {"apiVersion": "outbox.dev/v1alpha1"}

RELAY: Manifest = {
    **_HEAD,
    "kind": "OutboxRelay",
    "metadata": {"name": "shop"},
    "spec": {
        "database": {"secretRef": {"name": "shop-db"}},
        "broker": {"secretRef": {"name": "shop-rabbitmq"}},
    },
}
"""As short as it can be."""

LISTENER: Manifest = {
    **_HEAD,
    "kind": "OutboxListener",
    "metadata": {"name": "send-welcome-mail"},
    "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["user.created"]},
}
"""As short as it can be: topology only."""

TEMPLATE: Manifest = {
    "labels": {"team": "shop"},
    "annotations": {"example.org/note": "x"},
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1}},
    "env": [
        {"name": "TZ", "value": "UTC"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Exists", "tolerationSeconds": 60}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "high",
    "serviceAccountName": "shop",
    "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
    "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "volumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
}

FULL_RELAY: Manifest = {
    **RELAY,
    "spec": {
        "database": {
            "secretRef": {"name": "shop-db"},
            "table": 'shop."outbox.table"',
            "channel": "shop_channel",
            "notify": "Never",
            "manageSchema": "Check",
        },
        "broker": {
            "secretRef": {"name": "shop-rabbitmq"},
            "vhost": "/shop",
            "managementUrl": "https://rabbitmq.example:15671/prefix",
            "caSecretRef": {"name": "rabbitmq-ca", "key": "tls.crt"},
        },
        "exchange": "shop events",
        "replicas": 3,
        "batchSize": 50,
        "lanes": 4,
        "listen": False,
        "pollInterval": "2s500ms",
        "notificationTimeout": "30s",
        "publishTimeout": "5s",
        "expiration": "24h",
        "expired": "Park",
        "unroutable": "Drop",
        "unroutableGrace": "0s",
        "publishRetry": {"initial": "100ms", "maximum": "1h", "maxAttempts": 0},
        "retention": {"sent": "168h", "parked": "720h"},
        "maxMessageSize": 1000,
        "shutdownTimeout": "1m",
        "deletionPolicy": "DeleteIfEmpty",
        "paused": True,
        "image": "registry.example/relay:1.0",
        "template": TEMPLATE,
    },
}
"""With every field, none of them as it is by default."""

FULL_LISTENER: Manifest = {
    **LISTENER,
    "spec": {
        "relayRef": {"name": "shop"},
        "bindingKeys": ["user.created", "order.*", "audit.#"],
        "queue": "mails",
        "retryDelays": ["300ms", "1h30m"],
        "limits": {"maxLength": 1000, "maxBytes": 1_000_000_000, "deliveryLimit": 5},
        "ordered": True,
        "handler": "shop.listeners:send_welcome_mail",
        "worker": {
            "image": "registry.example/shop:1.4",
            "replicas": 2,
            "prefetch": 20,
            "shutdownTimeout": "2m",
            "autoscaling": {"min": 0, "max": 5, "backlogPerReplica": 50},
            "template": TEMPLATE,
        },
        "deletionPolicy": "Delete",
        "paused": True,
    },
}
"""With every field, none of them as it is by default."""

_ADMINISTRATOR = {"name": "rabbitmq-admin"}
_WORKING = {"handler": "shop.listeners", "worker": {"image": "shop:1"}}
_NOT_A_DURATION = "write whole numbers with h, m, s or ms, such as 300ms, 10s or 1h30m"
_DELAY = f"must be a duration from 1ms to 24h; {_NOT_A_DURATION}"


@dataclass(frozen=True)
class Case:
    """A manifest that is bad in one way."""

    manifest: Manifest
    """The good one."""
    changes: dict[str, Any]
    """What is changed in it, by the path below `spec`, or with a leading dot by the whole path."""
    where: str
    """The field that the complaint is about."""
    complaint: str
    """What is said of it."""

    @property
    def bad(self) -> Manifest:
        return changed(self.manifest, self.changes)

    @property
    def name(self) -> str:
        values = ", ".join(f"{path}={_short(value)}" for path, value in self.changes.items())
        return f"{self.manifest['kind']}: {values}"


RULES = [
    Case(
        LISTENER, {"bindingKeys": []}, "spec.bindingKeys", "must name at least one topic; write for example"
    ),
    Case(
        LISTENER, {"bindingKeys": ["ä" * 128]}, "spec.bindingKeys[0]", "must have at most 255 bytes of UTF-8"
    ),
    Case(
        LISTENER, {"bindingKeys": ["a~b"]}, "spec.bindingKeys[0]", "must not contain ~, with which RabbitMQ"
    ),
    Case(LISTENER, {"retryDelays": ["1s", "0s"]}, "spec.retryDelays[1]", _DELAY),
    Case(LISTENER, {"retryDelays": ["0ms"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["24h1ms"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["25h"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["500us"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["1.5s"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["-1s"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["10"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["1d"]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": [""]}, "spec.retryDelays[0]", _DELAY),
    Case(LISTENER, {"retryDelays": ["1s\n"]}, "spec.retryDelays[0]", _DELAY),
    Case(
        LISTENER,
        {"retryDelays": [f"{n}s" for n in range(1, 18)]},
        "spec.retryDelays",
        "retryDelays must be at most 16, as each is a queue on the broker; leave some out",
    ),
    Case(
        LISTENER,
        {"queue": "amq.mails"},
        "spec.queue",
        "must not start with amq., which belongs to the broker",
    ),
    Case(LISTENER, {"queue": "mäils"}, "spec.queue", "must consist of ASCII letters, digits, spaces and"),
    Case(LISTENER, {"queue": "mails\n"}, "spec.queue", "must consist of ASCII letters, digits, spaces and"),
    Case(
        LISTENER,
        {".metadata.name": "n" * 188},
        "",
        "metadata.name must have at most 187 characters where it is part of the queue's name; shorten it, or",
    ),
    Case(
        LISTENER,
        {"handler": "shop.listeners:on_user"},
        "spec",
        "handler needs a worker to run it; set worker.image, or remove handler",
    ),
    Case(
        LISTENER,
        {**_WORKING, "handler": "shop/listeners.py"},
        "spec.handler",
        "must be a module or module:func",
    ),
    Case(
        LISTENER, {**_WORKING, "handler": ""}, "spec.handler", "must be a module or module:function, such as"
    ),
    Case(
        LISTENER,
        {**_WORKING, "handler": "a:b:c"},
        "spec.handler",
        "must be a module or module:function, such",
    ),
    Case(
        LISTENER,
        {**_WORKING, "worker.autoscaling": {"min": 5, "max": 4}},
        "spec.worker.autoscaling",
        "autoscaling.min must not be more than autoscaling.max; lower min or raise max",
    ),
    Case(
        LISTENER,
        {**_WORKING, "worker.shutdownTimeout": "25h"},
        "spec.worker.shutdownTimeout",
        f"must be a duration from 0s to 24h; {_NOT_A_DURATION}",
    ),
    Case(RELAY, {"exchange": "amq.topic"}, "spec.exchange", "must not start with amq., which belongs to the"),
    Case(RELAY, {"exchange": "käse"}, "spec.exchange", "must consist of ASCII letters, digits, spaces and"),
    Case(
        RELAY, {"database.table": "a.b.c"}, "spec.database.table", "must be table or schema.table, each of at"
    ),
    Case(
        RELAY, {"database.table": "shop."}, "spec.database.table", "must be table or schema.table, each of at"
    ),
    Case(
        RELAY, {"database.table": "tä"}, "spec.database.table", "each of at most 63 ASCII characters; put a"
    ),
    Case(
        RELAY, {"database.table": '"a"b.c'}, "spec.database.table", "must be table or schema.table, each of"
    ),
    Case(
        RELAY, {"database.channel": "ä" * 32}, "spec.database.channel", "must have at most 63 bytes of UTF-8"
    ),
    Case(RELAY, {"broker.vhost": "ä" * 128}, "spec.broker.vhost", "must have at most 255 bytes of UTF-8"),
    Case(
        RELAY,
        {"database.table": "t" * 64},
        "spec.database.table",
        "must be table or schema.table, each of at",
    ),
    Case(
        RELAY,
        {"broker.managementUrl": "http://user:password@rabbitmq:15672"},
        "spec.broker.managementUrl",
        "must be http://host:port or https://host:port, without user and password: those are in the Secret",
    ),
    Case(
        RELAY,
        {"broker.managementUrl": "rabbitmq:15672"},
        "spec.broker.managementUrl",
        "must be http://host:port or https://host:port, without user",
    ),
    *(
        Case(RELAY, {"broker.managementUrl": url}, "spec.broker.managementUrl", "must be http://host:port or")
        for url in (
            "http://[::1:15672",
            "http://::1]:15672",
            "http://rabbitmq:port",
            "http://rabbitmq:99999",
            "http://rabbitmq:0",
            "http://rabbit..mq:15672",
            "http://rabbitmq?a=b",
            "http://rabbitmq/path?a=",
            "http://rabbitmq/#a",
            "http://rabbitmq/%2e%2e",
            "file:///etc/passwd",
        )
    ),
    Case(
        RELAY,
        {"broker.secretRef": GONE},
        "spec.broker",
        "must have either secretRef or administratorSecretRef; write one of them",
    ),
    Case(
        RELAY,
        {"broker.administratorSecretRef": _ADMINISTRATOR, "broker.vhost": "/shop"},
        "spec.broker",
        "must have either secretRef or administratorSecretRef; write one of them",
    ),
    Case(
        RELAY,
        {"broker": {"administratorSecretRef": _ADMINISTRATOR}},
        "spec.broker",
        "administratorSecretRef needs vhost: the virtual host that this namespace was given",
    ),
    *(
        Case(
            RELAY,
            {"broker": {"administratorSecretRef": _ADMINISTRATOR, "vhost": "/shop", **own}},
            "spec.broker",
            "managementUrl and caSecretRef must not be set with administratorSecretRef: they are the keys",
        )
        for own in (
            {"managementUrl": "http://rabbitmq:15672"},
            {"caSecretRef": {"name": "ca", "key": "ca.crt"}},
        )
    ),
    Case(RELAY, {"pollInterval": "9ms"}, "spec.pollInterval", "must be a duration from 10ms to 1h; write"),
    Case(
        RELAY,
        {"notificationTimeout": "5m1s"},
        "spec.notificationTimeout",
        "must be a duration from 100ms to 5m",
    ),
    Case(
        RELAY, {"publishTimeout": "0s"}, "spec.publishTimeout", "must be a duration from 100ms to 1h; write"
    ),
    Case(RELAY, {"expiration": "Forever"}, "spec.expiration", "must be a duration from 1ms to 87600h; write"),
    Case(RELAY, {"unroutableGrace": "1 minute"}, "spec.unroutableGrace", "must be a duration from 0s to 24h"),
    Case(
        RELAY,
        {"retention.sent": "never"},
        "spec.retention.sent",
        "from 0s to 87600h, or Forever; write whole",
    ),
    Case(
        RELAY, {"retention.parked": "99999h"}, "spec.retention.parked", "from 0s to 87600h, or Forever; write"
    ),
    Case(
        RELAY, {"shutdownTimeout": "61m"}, "spec.shutdownTimeout", "must be a duration from 0s to 1h; write"
    ),
    Case(
        RELAY,
        {"publishRetry": {"initial": "2m"}},
        "spec.publishRetry",
        "initial must not be longer than maximum; shorten initial or lengthen maximum",
    ),
]
"""What the API server and the types refuse in the same words."""

BOUNDS = [
    Case(RELAY, {".spec": GONE}, "spec", "Required value"),
    Case(RELAY, {"database": GONE}, "spec.database", "Required value"),
    Case(RELAY, {"database.secretRef": GONE}, "spec.database.secretRef", "Required value"),
    Case(RELAY, {"broker.secretRef.name": ""}, "spec.broker.secretRef.name", "at least 1 chars long"),
    Case(RELAY, {"database.manageSchema": "Migrate"}, "spec.database.manageSchema", '"Create", "Check"'),
    Case(RELAY, {"database.channel": "c" * 64}, "spec.database.channel", "may not be more than 63"),
    Case(RELAY, {"exchange": ""}, "spec.exchange", "at least 1 chars long"),
    Case(RELAY, {"exchange": "e" * 111}, "spec.exchange", "may not be more than 110"),
    Case(RELAY, {"replicas": -1}, "spec.replicas", "greater than or equal to 0"),
    Case(RELAY, {"replicas": "two"}, "spec.replicas", 'must be of type integer: "string"'),
    Case(RELAY, {"batchSize": 0}, "spec.batchSize", "greater than or equal to 1"),
    Case(RELAY, {"lanes": 33}, "spec.lanes", "less than or equal to 32"),
    Case(RELAY, {"pollInterval": 5}, "spec.pollInterval", 'must be of type string: "integer"'),
    Case(RELAY, {"pollInterval": "0" * 29}, "spec.pollInterval", "may not be more than 28"),
    Case(RELAY, {"expired": "drop"}, "spec.expired", '"Drop", "Park"'),
    Case(RELAY, {"unroutable": "Keep"}, "spec.unroutable", '"Park", "Drop"'),
    Case(
        RELAY, {"publishRetry.maxAttempts": -1}, "spec.publishRetry.maxAttempts", "greater than or equal to 0"
    ),
    Case(RELAY, {"maxMessageSize": 0}, "spec.maxMessageSize", "greater than or equal to 1"),
    Case(RELAY, {"deletionPolicy": "Keep"}, "spec.deletionPolicy", '"Retain", "DeleteIfEmpty", "Delete"'),
    Case(
        RELAY, {"template.priorityClassName": ""}, "spec.template.priorityClassName", "at least 1 chars long"
    ),
    Case(
        RELAY,
        {"template.imagePullSecrets": [{}]},
        "spec.template.imagePullSecrets[0].name",
        "Required value",
    ),
    Case(
        LISTENER,
        {**_WORKING, "worker.template.imagePullSecrets": [{"name": ""}]},
        "spec.worker.template.imagePullSecrets[0].name",
        "at least 1 chars long",
    ),
    Case(LISTENER, {"relayRef": GONE}, "spec.relayRef", "Required value"),
    Case(LISTENER, {"bindingKeys": GONE}, "spec.bindingKeys", "Required value"),
    Case(LISTENER, {"bindingKeys": [""]}, "spec.bindingKeys[0]", "at least 1 chars long"),
    Case(LISTENER, {"bindingKeys": [f"k{n}" for n in range(65)]}, "spec.bindingKeys", "at most 64 items"),
    Case(LISTENER, {"queue": "q" * 252}, "spec.queue", "may not be more than 251"),
    Case(LISTENER, {"retryDelays": "1s"}, "spec.retryDelays", 'must be of type array: "string"'),
    Case(LISTENER, {"limits.maxLength": 0}, "spec.limits.maxLength", "greater than or equal to 1"),
    Case(LISTENER, {"limits.maxBytes": "1Gi"}, "spec.limits.maxBytes", 'must be of type integer: "string"'),
    Case(LISTENER, {"limits.deliveryLimit": 0}, "spec.limits.deliveryLimit", "greater than or equal to 1"),
    Case(LISTENER, {"worker": {}}, "spec.worker.image", "Required value"),
    Case(
        LISTENER,
        {**_WORKING, "worker.prefetch": 65536},
        "spec.worker.prefetch",
        "less than or equal to 65535",
    ),
    Case(
        LISTENER, {**_WORKING, "worker.replicas": 1001}, "spec.worker.replicas", "less than or equal to 1000"
    ),
    Case(LISTENER, {**_WORKING, "worker.autoscaling": {}}, "spec.worker.autoscaling.max", "Required value"),
    Case(
        LISTENER,
        {**_WORKING, "worker.autoscaling": {"min": 0, "max": 0}},
        "spec.worker.autoscaling.max",
        "greater than or equal to 1",
    ),
]
"""What both refuse, each in words of its own; these are the API server's."""

ONLY_IN_THE_CLUSTER = [
    Case(RELAY, {"replica": 2}, "", 'unknown field "spec.replica"'),
    Case(RELAY, {"database.secretName": "x"}, "", 'unknown field "spec.database.secretName"'),
    Case(RELAY, {"template.env": [{"value": "x"}]}, "spec.template.env[0].name", "Required value"),
    Case(
        RELAY,
        {"template.env": [{"name": "A"}, {"name": "A"}]},
        "spec.template.env[1]",
        "Duplicate value",
    ),
    Case(
        RELAY,
        {"template.imagePullSecrets": [{"name": "registry", "namespace": "other"}]},
        "",
        'unknown field "spec.template.imagePullSecrets[0].namespace"',
    ),
    Case(LISTENER, {"bindingKeys": ["a", "a"]}, "spec.bindingKeys[1]", "Duplicate value"),
]
"""What only the API server refuses: the types read what a newer version wrote."""

ACCEPTED = [
    ("a relay as short as it can be", RELAY, {}),
    ("a relay with everything", FULL_RELAY, {}),
    (
        "a relay with the operator's administrator",
        RELAY,
        {"broker": {"administratorSecretRef": _ADMINISTRATOR, "vhost": "/shop"}},
    ),
    ("a relay that does not run", RELAY, {"replicas": 0}),
    ("the longest exchange", RELAY, {"exchange": "e" * 110}),
    ("a table with a schema", RELAY, {"database.table": "shop.outbox"}),
    ("messages for ever", RELAY, {"retention": {"sent": "Forever", "parked": "Forever"}}),
    ("null for left out", RELAY, {"expiration": None, "replicas": None, "template": None}),
    ("a listener as short as it can be", LISTENER, {}),
    ("a listener with everything", FULL_LISTENER, {}),
    ("no retry", LISTENER, {"retryDelays": []}),
    ("the bounds of delays", LISTENER, {"retryDelays": ["1ms", "24h"]}),
    ("a delay in parts", LISTENER, {"retryDelays": ["23h59m59s999ms"]}),
    ("all the tiers", LISTENER, {"retryDelays": [f"{n}s" for n in range(1, 17)]}),
    ("a worker of another language", LISTENER, {"worker": {"image": "shop:1"}}),
    ("a whole module", LISTENER, _WORKING),
    ("scaling to nothing", LISTENER, {**_WORKING, "worker.autoscaling": {"min": 0, "max": 1}}),
    ("as many at least as at most", LISTENER, {**_WORKING, "worker.autoscaling": {"min": 3, "max": 3}}),
    ("the longest name", LISTENER, {".metadata.name": "n" * 187}),
    ("a longer one with a queue", LISTENER, {".metadata.name": "n" * 250, "queue": "mails"}),
    ("the longest queue", LISTENER, {"queue": "q" * 251}),
]
"""Good manifests: a name, a manifest, changes."""


@dataclass(frozen=True)
class Update:
    """A change to a resource that exists."""

    name: str
    manifest: Manifest
    """As it is created."""
    changes: dict[str, Any]
    """What is changed then."""
    complaint: str = field(default="")
    """What the API server says; empty where it may be."""


UPDATES = [
    Update("another exchange", RELAY, {"exchange": "other"}, "spec.exchange: Invalid value: "),
    Update("the default exchange", FULL_RELAY, {"exchange": GONE}, "exchange cannot be changed, since its"),
    Update("the exchange written out", RELAY, {"exchange": "outbox"}),
    Update(
        "another relay", LISTENER, {"relayRef.name": "other"}, "relayRef cannot be changed, as messages would"
    ),
    Update(
        "another queue", FULL_LISTENER, {"queue": "other"}, "queue cannot be changed, set or removed later"
    ),
    Update(
        "a queue set later", LISTENER, {"queue": "mails"}, "queue cannot be changed, set or removed later"
    ),
    Update(
        "a queue removed", FULL_LISTENER, {"queue": GONE}, "queue cannot be changed, set or removed later"
    ),
    Update("no worker for a handler", FULL_LISTENER, {"worker": GONE}, "handler needs a worker to run it"),
    Update("other settings", RELAY, {"replicas": 5, "batchSize": 10, "pollInterval": "5s", "paused": True}),
    Update(
        "other credentials", RELAY, {"database.secretRef.name": "other", "broker.secretRef.name": "other"}
    ),
    Update("other topics and delays", LISTENER, {"bindingKeys": ["a", "b"], "retryDelays": ["5s"]}),
    Update("workers later", LISTENER, _WORKING),
    Update("workers no more", FULL_LISTENER, {"worker": GONE, "handler": GONE}),
]


def changed(manifest: Manifest, changes: dict[str, Any]) -> Manifest:
    """A copy of `manifest` with `changes`."""
    copy = deepcopy(manifest)
    for path, value in changes.items():
        *parents, last = path[1:].split(".") if path.startswith(".") else ["spec", *path.split(".")]
        place = copy
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = deepcopy(value)
    return copy


def _short(value: Any) -> str:
    text = "GONE" if value is GONE else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
