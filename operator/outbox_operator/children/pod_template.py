"""The pod template of a workload. It passes the pod security standard "restricted".

Nothing in it depends on the number of replicas: scaling must not roll pods. Whoever changes what it says
raises `TEMPLATE_VERSION`.
"""

import math
from typing import Any

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import component_of, labels_of
from outbox_operator.children.workload import Workload

TEMPLATE_VERSION = 2
"""By which pods that an older operator made are told from drift: those are left alone."""

HTTP_PORT = 8080
HTTP_PORT_NAME = "http"
CA_FOLDER = "/etc/outbox/ca"
CA_FILE = f"{CA_FOLDER}/ca.crt"
"""Where a container finds the broker's CA."""
DATABASE_CA_FILE = f"{CA_FOLDER}/database.crt"
"""Where it finds the database's."""

_PRE_STOP_SECONDS = 1
_MARGIN_SECONDS = 5
_DEFAULT_RESOURCES: Manifest = {"requests": {"cpu": "50m", "memory": "96Mi"}}
_OURS_TO_SAY = frozenset(
    {
        "OUTBOX_BROKER_URL",
        "OUTBOX_DATABASE_URL",
        "OUTBOX_EXCHANGE_NAME",
        "OUTBOX_QUEUE",
        "OUTBOX_PROVISIONED",
        "OUTBOX_PROBE_PORT",
    }
)
"""What ties a pod to what the operator made for it. Other settings a user may override in the template, where
nobody writes an OUTBOX_ variable by accident."""


def pod_template(workload: Workload) -> Manifest:
    """The template."""
    template, owner = workload.template, workload.owner
    metadata: Manifest = {"labels": {**template.labels, **labels_of(owner)}}
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    return {"metadata": metadata, "spec": _pod(workload)}


def _pod(workload: Workload) -> Manifest:
    template = workload.template
    wait = math.ceil(workload.shutdown_timeout.total_seconds())
    chosen = {
        "nodeSelector": template.node_selector,
        "tolerations": list(template.tolerations),
        "affinity": template.affinity,
        "topologySpreadConstraints": _spread(workload),
        "priorityClassName": template.priority_class_name,
        "serviceAccountName": template.service_account_name,
        "imagePullSecrets": [secret.manifest() for secret in template.image_pull_secrets],
        "volumes": _volumes(workload),
    }
    return {
        "containers": [_container(workload)],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": wait + _PRE_STOP_SECONDS + _MARGIN_SECONDS,
        **{field: value for field, value in chosen.items() if value},
    }


def _container(workload: Workload) -> Manifest:
    chosen = {
        "command": list(workload.command),
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "volumeMounts": _mounts(workload),
    }
    return {
        "name": component_of(workload.owner),
        "image": workload.image,
        "env": _environment(workload),
        # Requests, so that the scheduler counts the pod and a full node does not evict it first. No limits:
        # a message may be large, and what a handler needs nobody here knows.
        "resources": workload.template.resources or _DEFAULT_RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "lifecycle": {"preStop": {"sleep": {"seconds": _PRE_STOP_SECONDS}}},
        # The end of the log is then in the pod's status, for the condition.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **(_probes() if workload.serves_http else {}),
        **{field: value for field, value in chosen.items() if value},
    }


def _environment(workload: Workload) -> list[Manifest]:
    ours: list[Manifest] = [
        # Kubernetes reads $(NAME) as a reference, and $$ as $.
        {"name": name, "value": value.replace("$", "$$")}
        for name, value in {**workload.environment, "OUTBOX_PROBE_PORT": str(HTTP_PORT)}.items()
    ]
    ours += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": workload.secret_name, "key": key}}}
        for name, key in workload.secret_environment.items()
    ]
    given = {variable["name"] for variable in workload.template.env}
    ours = [each for each in ours if each["name"] in _OURS_TO_SAY or each["name"] not in given]
    taken = {each["name"] for each in ours}
    return [*ours, *(each for each in workload.template.env if each["name"] not in taken)]


def _volumes(workload: Workload) -> list[Manifest]:
    volumes: list[Manifest] = []
    if not _has_tmp(workload):
        volumes.append({"name": "outbox-tmp", "emptyDir": {}})
    files = ((workload.ca_key, CA_FILE), (workload.database_ca_key, DATABASE_CA_FILE))
    items = [{"key": key, "path": file.removeprefix(f"{CA_FOLDER}/")} for key, file in files if key]
    if items:
        volumes.append({"name": "outbox-ca", "secret": {"secretName": workload.secret_name, "items": items}})
    return [*volumes, *workload.template.volumes]


def _mounts(workload: Workload) -> list[Manifest]:
    mounts: list[Manifest] = []
    if not _has_tmp(workload):
        mounts.append({"name": "outbox-tmp", "mountPath": "/tmp"})  # noqa: S108 - the container's own
    if workload.ca_key is not None or workload.database_ca_key is not None:
        mounts.append({"name": "outbox-ca", "mountPath": CA_FOLDER, "readOnly": True})
    return [*mounts, *workload.template.volume_mounts]


def _has_tmp(workload: Workload) -> bool:
    given = (str(mount["mountPath"]).rstrip("/") for mount in workload.template.volume_mounts)
    return "/tmp" in given  # noqa: S108 - the container's own


def _spread(workload: Workload) -> list[Manifest]:
    """What the user asks for, else over the nodes as far as that is possible."""
    template = workload.template
    selector = {"matchLabels": labels_of(workload.owner)}
    if template.topology_spread_constraints:
        return [{"labelSelector": selector, **each} for each in template.topology_spread_constraints]
    if template.affinity:
        return []
    by_node = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    # Pods that are about to be replaced do not count.
    return [{**by_node, "labelSelector": selector, "matchLabelKeys": ["pod-template-hash"]}]


def _probes() -> Manifest:
    def probe(path: str, **numbers: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": HTTP_PORT_NAME}, "timeoutSeconds": 3, **numbers}

    return {
        # Two minutes: before it serves, a worker imports the application.
        "startupProbe": probe("/livez", periodSeconds=2, failureThreshold=60),
        "livenessProbe": probe("/livez", periodSeconds=10, failureThreshold=3),
        "readinessProbe": probe("/readyz", periodSeconds=5, failureThreshold=2),
    }
