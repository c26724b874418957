"""What the operator counts about itself."""

from collections.abc import Callable, Iterable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from outbox_operator.broker.actions import Action
from outbox_operator.children.names import Owner
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The operator's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.reconciles = Counter(
            "outbox_operator_reconciles",
            "Looks at a resource, by how they ended",
            ["kind", "result"],
            registry=registry,
        )
        self.reconcile_seconds = Histogram(
            "outbox_operator_reconcile_seconds",
            "How long a look at a resource took",
            ["kind"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue_depth = Gauge(
            "outbox_operator_queue_depth", "Resources that wait to be looked at", registry=registry
        )
        self.broker_calls = Counter(
            "outbox_operator_broker_calls",
            "Calls to the management API of brokers",
            ["method", "outcome"],
            registry=registry,
        )
        self.api_calls = Counter(
            "outbox_operator_api_calls",
            "Calls to the Kubernetes API, without those of the watches",
            ["verb", "outcome"],
            registry=registry,
        )
        self.drift_repairs = Counter(
            "outbox_operator_drift_repairs",
            "Broker objects that were not as they had been made, and were put right",
            ["action"],
            registry=registry,
        )
        self.internal_errors = Counter(
            "outbox_operator_internal_errors",
            "Unexpected errors, by the part of the operator that met one and goes on; the log has each",
            ["part"],
            registry=registry,
        )
        self.leader = Gauge("outbox_operator_leader", "1 where this replica leads, else 0", registry=registry)

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Ask `depth` whenever somebody looks."""
        self.queue_depth.set_function(depth)

    def count_broker_call(self, method: str, outcome: str) -> None:
        self.broker_calls.labels(method, outcome).inc()

    def count_api_call(self, verb: str, outcome: str) -> None:
        self.api_calls.labels(verb, outcome).inc()

    def count_fault(self, part: str) -> None:
        self.internal_errors.labels(part).inc()

    def count_repairs(self, owner: Owner, actions: Iterable[Action]) -> None:
        """Count what has to be done for a resource although all was well with it, and it has not changed."""
        if is_settled(owner):
            for action in actions:
                self.drift_repairs.labels(type(action).__name__).inc()


def is_settled(owner: Owner) -> bool:
    """Whether the last look at this very generation left the broker as it should be."""
    return any(
        condition.type == ConditionType.TOPOLOGY_READY
        and condition.status == ConditionStatus.TRUE
        and condition.observed_generation == owner.metadata.generation
        for condition in owner.status.conditions
    )
