"""The Deployment of a workload."""

import hashlib
import json

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import child_metadata, labels_of
from outbox_operator.children.pod_template import TEMPLATE_VERSION, pod_template
from outbox_operator.children.workload import Workload

INPUTS = "outbox.dev/inputs"
"""The annotation by which a change of what was asked for is told from one of the operator."""
VERSION = "outbox.dev/template-version"
"""The annotation that has the version of the pod template."""
DEFAULT_IMAGE = "outbox.dev/default-image"
"""The annotation that has the image where it was the operator's choice."""
_HASH_DIGITS = 16


def deployment(workload: Workload) -> Manifest:
    """The Deployment. Without a number of replicas where a scaler says it."""
    annotations = {INPUTS: _hash(workload), VERSION: str(TEMPLATE_VERSION)}
    if workload.is_default_image:
        annotations[DEFAULT_IMAGE] = workload.image
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(workload.owner, annotations=annotations),
        "spec": {
            **({"replicas": workload.replicas} if workload.replicas is not None else {}),
            "selector": {"matchLabels": labels_of(workload.owner)},
            # No pod goes before its successor is ready. Of an ordered queue one consumer is active anyway.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "revisionHistoryLimit": 3,
            "template": pod_template(workload),
        },
    }


def _hash(workload: Workload) -> str:
    text = json.dumps(workload.inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
