"""The kinds of KEDA and of Prometheus' operator, as far as anything may be in them."""

import time
from collections.abc import Sequence
from dataclasses import replace

from outbox_operator.cluster.kinds import POD_MONITOR, SCALED_OBJECT, TRIGGER_AUTHENTICATION, Kind
from tests.operator.control_plane.api import Api, Manifest, RefusedError

NEIGHBOURS = (POD_MONITOR, SCALED_OBJECT, TRIGGER_AUTHENTICATION)
"""Those that the operator makes objects of."""
PROMETHEUS_RULE = replace(POD_MONITOR, plural="prometheusrules", kind="PrometheusRule")
"""That of the chart."""

_DEADLINE_SECONDS = 30
_POLL_SECONDS = 0.05


def install(api: Api, kinds: Sequence[Kind] = NEIGHBOURS) -> None:
    """Define them, where they are not there already, and wait until they are served."""
    for kind in kinds:
        manifest = definition(kind)
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{manifest['metadata']['name']}"
        api.request("PATCH", f"{path}?fieldManager=tests", manifest, "application/apply-patch+yaml")
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not all(_is_served(api, kind) for kind in kinds):
        assert time.monotonic() < deadline, "the neighbours' kinds were defined, and are not served"
        time.sleep(_POLL_SECONDS)


def definition(kind: Kind) -> Manifest:
    """One of these, for a cluster that has it not."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [version],
        },
    }


def _is_served(api: Api, kind: Kind) -> bool:
    try:
        api.request("GET", f"/apis/{kind.api_version}/{kind.plural}")
    except RefusedError:
        return False
    return True
