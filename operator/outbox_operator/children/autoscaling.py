"""Workers by the backlog of their queue: the objects that tell KEDA."""

from typing import assert_never

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_metadata, child_name
from outbox_operator.children.pod_secret import CA, TLS
from outbox_operator.children.workload import Workload
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.listener import Autoscaling


def autoscaling_of(owner: Owner) -> Autoscaling | None:
    """What its workers are scaled by."""
    match owner:
        case OutboxRelay():
            return None
        case OutboxListener():
            return owner.spec.worker.autoscaling if owner.spec.worker else None
        case _:
            assert_never(owner)


def scaled_object(workload: Workload, autoscaling: Autoscaling, queue: str) -> Manifest:
    """What KEDA scales, by how many messages wait in the queue."""
    name = child_name(workload.owner)
    trigger = {
        "type": "rabbitmq",
        "metadata": {
            "protocol": "amqp",
            "mode": "QueueLength",
            "value": str(autoscaling.backlog_per_replica),
            "queueName": queue,
        },
        "authenticationRef": {"name": name},
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": child_metadata(workload.owner),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicaCount": autoscaling.min,
            "maxReplicaCount": autoscaling.max,
            "triggers": [trigger],
        },
    }


def trigger_authentication(workload: Workload) -> Manifest:
    """How KEDA enters the broker: as the workers do."""
    parameters = {"host": workload.scaler_key}
    if workload.ca_key is not None:
        parameters |= {"ca": CA, "tls": TLS}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": child_metadata(workload.owner),
        "spec": {
            "secretTargetRef": [
                {"parameter": parameter, "name": workload.secret_name, "key": key}
                for parameter, key in parameters.items()
            ]
        },
    }
