"""How Prometheus finds the metrics of a workload, where its operator is in the cluster."""

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_metadata, labels_of
from outbox_operator.children.pod_template import HTTP_PORT_NAME


def pod_monitor(owner: Owner) -> Manifest:
    """The PodMonitor."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": child_metadata(owner),
        "spec": {
            "selector": {"matchLabels": labels_of(owner)},
            "podMetricsEndpoints": [{"port": HTTP_PORT_NAME, "path": "/metrics"}],
        },
    }
