"""The two CustomResourceDefinitions: names, columns and subresources around the schemas."""

from dataclasses import dataclass
from typing import Any, Literal

from outbox_operator.crds.structural import schema_of
from outbox_operator.resources import API_GROUP, API_VERSION, OutboxListener, OutboxRelay

CATEGORY = "outbox"


@dataclass(frozen=True, slots=True)
class Column:
    """What `kubectl get` shows of a resource."""

    name: str
    """The heading; kubectl writes it in capitals."""
    path: str
    """Where the value is."""
    description: str
    """What it means."""
    type: Literal["string", "integer", "date"] = "string"
    """How it is shown; a date is shown as the time since."""
    priority: int = 0
    """0 is always shown, 1 only with `-o wide`."""

    def manifest(self) -> dict[str, Any]:
        """As it is in the definition."""
        column = {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        }
        return {**column, "priority": self.priority} if self.priority else column


@dataclass(frozen=True, slots=True)
class Definition:
    """One custom resource, as the cluster learns of it."""

    model: type[OutboxRelay] | type[OutboxListener]
    """Its type, whose name is the kind."""
    short_name: str
    """What people type."""
    replicas_path: str
    """Where `kubectl scale` writes."""
    columns: tuple[Column, ...]
    """What `kubectl get` shows."""

    @property
    def kind(self) -> str:
        """The kind, as a manifest says it."""
        return self.model.__name__

    @property
    def plural(self) -> str:
        """The name in the API's paths."""
        return f"{self.kind.lower()}s"

    def manifest(self) -> dict[str, Any]:
        """The CustomResourceDefinition."""
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{API_GROUP}"},
            "spec": {
                "group": API_GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "singular": self.kind.lower(),
                    "plural": self.plural,
                    "shortNames": [self.short_name],
                    "categories": [CATEGORY],
                },
                "versions": [self._version()],
            },
        }

    def _version(self) -> dict[str, Any]:
        return {
            "name": API_VERSION,
            "served": True,
            "storage": True,
            "additionalPrinterColumns": [column.manifest() for column in self.columns],
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": self.replicas_path,
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "schema": {"openAPIV3Schema": self._schema()},
        }

    def _schema(self) -> dict[str, Any]:
        schema = schema_of(self.model)
        properties = schema["properties"]
        # Only where somebody has written one; and of the metadata Kubernetes has a schema of its own.
        properties["status"].pop("default")
        return {
            **schema,
            "required": ["spec"],
            "properties": {
                "apiVersion": {"type": "string", "description": f"{API_GROUP}/{API_VERSION}"},
                "kind": {"type": "string", "description": self.kind},
                "metadata": {"type": "object"},
                "spec": properties["spec"],
                "status": properties["status"],
            },
        }


_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether all is well")
_REASON = Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why it is not, in one word")
_AGE = Column("Age", ".metadata.creationTimestamp", "The time since it was made", "date")

RELAY = Definition(
    model=OutboxRelay,
    short_name="obr",
    replicas_path=".spec.replicas",
    columns=(
        _READY,
        _REASON,
        Column("Replicas", ".status.readyReplicas", "How many relays are ready", "integer"),
        Column("Backlog", ".status.backlog", "How many messages are due and not sent", "integer"),
        Column("Oldest", ".status.oldestPendingAt", "How long the oldest of them is due", "date"),
        Column("Parked", ".status.parked", "How many messages wait for a person", "integer"),
        Column("Exchange", ".spec.exchange", "The exchange that messages go to", priority=1),
        _AGE,
    ),
)
LISTENER = Definition(
    model=OutboxListener,
    short_name="obl",
    replicas_path=".spec.worker.replicas",
    columns=(
        _READY,
        _REASON,
        Column("Queue", ".status.queue", "The queue"),
        Column("Workers", ".status.readyReplicas", "How many workers are ready", "integer"),
        Column("Backlog", ".status.backlog", "How many messages are in the queue", "integer"),
        Column("DLQ", ".status.deadLetters", "How many messages are in the dead-letter queue", "integer"),
        Column("Relay", ".spec.relayRef.name", "The OutboxRelay", priority=1),
        _AGE,
    ),
)
DEFINITIONS = (RELAY, LISTENER)
