"""Who may speak to the pods of a workload, where network policies are asked for."""

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_metadata, labels_of
from outbox_operator.children.pod_template import HTTP_PORT_NAME


def network_policy(owner: Owner) -> Manifest:
    """Nobody but whoever asks for probes and metrics.

    What the pods speak to is left open: the broker and the database are host names in a Secret, in the
    cluster or outside, and a handler calls whatever it calls. A policy knows labels and addresses alone.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(owner),
        "spec": {
            "podSelector": {"matchLabels": labels_of(owner)},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": HTTP_PORT_NAME, "protocol": "TCP"}]}],
        },
    }
