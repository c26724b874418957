"""What runs for a resource: everything that its Deployment follows from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from outbox_operator.children.names import Owner
from outbox_operator.children.pod_secret import BROKER_URI, CA, DATABASE_CA, DATABASE_URI
from outbox_operator.relay_environment import relay_environment
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.template import Template
from outbox_operator.worker_environment import worker_environment

# What does not reach the pods, or only through the Secret. Everything else does: a field that is forgotten
# here rolls pods without need, while one forgotten in a list of what does would never reach them.
_NOT_OF_A_RELAY = {
    "database": {"secret_ref", "ca_secret_ref"},
    "broker": True,
    "replicas": True,
    "deletion_policy": True,
    "paused": True,
}
_NOT_OF_A_WORKER = {
    "relay_ref": True,
    "binding_keys": True,
    "queue": True,
    "limits": True,
    "worker": {"replicas", "autoscaling"},
    "deletion_policy": True,
    "paused": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The pods of a resource."""

    owner: Owner
    """The resource."""
    image: str
    """The image."""
    is_default_image: bool
    """Whether the image is the operator's choice, which an upgrade of the operator may change."""
    command: tuple[str, ...]
    """What is run; empty where the image says it."""
    serves_http: bool
    """Whether it is known to serve probes and metrics."""
    environment: Mapping[str, str]
    """Settings."""
    secret_name: str
    """The Secret of the pods; another content is another name."""
    secret_environment: Mapping[str, str]
    """Variables that come from that Secret, with their keys in it."""
    ca_key: str | None
    """The key in it that has the broker's CA; None where the system's will do."""
    database_ca_key: str | None = None
    """The same for the database."""
    scaler_key: str = BROKER_URI
    """The key in it by which a scaler reaches the broker."""
    replicas: int | None
    """How many pods there are; None where a scaler says it."""
    template: Template
    """What the user wants of the pods beside that."""
    shutdown_timeout: timedelta
    """How long the process takes to stop."""
    inputs: Mapping[str, Any]
    """What was asked for, as far as it reaches the pods: they are to roll when, and only when, it changes."""


def relay_workload(
    relay: OutboxRelay, *, image: str, secret_name: str, has_ca: bool, has_database_ca: bool = False
) -> Workload:
    """The pods of a relay; `image` is the operator's, for a relay that names none."""
    spec = relay.spec
    return Workload(
        owner=relay,
        image=spec.image or image,
        is_default_image=spec.image is None,
        command=("python", "-m", "outbox_relay"),
        serves_http=True,
        environment=relay_environment(spec),
        secret_name=secret_name,
        secret_environment={"OUTBOX_BROKER_URL": BROKER_URI, "OUTBOX_DATABASE_URL": DATABASE_URI},
        ca_key=CA if has_ca else None,
        database_ca_key=DATABASE_CA if has_database_ca else None,
        replicas=spec.replicas,
        template=spec.template,
        shutdown_timeout=spec.shutdown_timeout,
        inputs={"spec": _said(spec, _NOT_OF_A_RELAY), "secret": secret_name},
    )


def worker_workload(
    listener: OutboxListener,
    exchange: str,
    queue: str,
    *,
    secret_name: str,
    has_ca: bool,
    replicas: int | None,
    scaler_key: str = BROKER_URI,
) -> Workload:
    """The pods of a listener that has a worker; `replicas` is None where a scaler says how many."""
    spec, worker = listener.spec, listener.spec.worker
    if worker is None:
        raise ValueError(f"OutboxListener {listener.metadata.path} has no worker; ask before making one")
    return Workload(
        owner=listener,
        image=worker.image,
        is_default_image=False,
        command=("python", "-m", "outbox_worker", spec.handler) if spec.handler else (),
        # Without a handler it is a program of any language, and nobody knows what it serves.
        serves_http=spec.handler is not None,
        environment=worker_environment(spec, worker, exchange, queue),
        secret_name=secret_name,
        secret_environment={"OUTBOX_BROKER_URL": BROKER_URI},
        ca_key=CA if has_ca else None,
        scaler_key=scaler_key,
        replicas=replicas,
        template=worker.template,
        shutdown_timeout=worker.shutdown_timeout,
        inputs={
            "spec": _said(spec, _NOT_OF_A_WORKER),
            "exchange": exchange,
            "queue": queue,
            "secret": secret_name,
        },
    )


def _said(spec: Any, exclude: Mapping[str, Any]) -> dict[str, Any]:
    """A spec without what is as it is by default: a field that a newer version adds is not a change."""
    said: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=exclude)
    return said
