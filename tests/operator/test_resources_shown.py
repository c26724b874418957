"""Our resources as users see them, through kubectl."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from outbox_operator.crds import DEFINITIONS
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.manifests import FULL_LISTENER, LISTENER, RELAY, Manifest, changed

_SOME_TIME_AGO = datetime.now(UTC) - timedelta(minutes=5, seconds=5)

_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "SecretMissing",
    "message": "make the Secret shop-db",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
_RELAY_STATUS: Manifest = {
    "observedGeneration": 1,
    "conditions": [_READY],
    "exchange": "outbox",
    "replicas": 3,
    "readyReplicas": 2,
    "selector": "app=shop",
    "backlog": 1234,
    "oldestPendingAt": _SOME_TIME_AGO.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "parked": 7,
}
_LISTENER_STATUS: Manifest = {
    "observedGeneration": 1,
    "conditions": [{**_READY, "status": "True", "reason": "Ready", "message": ""}],
    "queue": "mails",
    "deadLetterQueue": "mails.dlq",
    "replicas": 2,
    "readyReplicas": 2,
    "selector": "app=mails",
    "backlog": 55,
    "deadLetters": 3,
}


def _created(api: Api, namespace: str, manifest: Manifest, status: Manifest | None = None) -> Manifest:
    stored = api.create(changed(manifest, {".metadata.namespace": namespace}))
    return api.replace({**stored, "status": status}, "/status") if status else stored


def _said(api: Api, *arguments: str, text: str = "") -> str:
    done = api.kubectl(*arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _table(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line]


def test_kubectl_get_shows_a_relay(api: Api, namespace: str) -> None:
    _created(api, namespace, RELAY, _RELAY_STATUS)
    headings, values = _table(_said(api, "get", "obr", "--namespace", namespace))
    assert headings == ["NAME", "READY", "REASON", "REPLICAS", "BACKLOG", "OLDEST", "PARKED", "AGE"]
    assert values[:5] == ["shop", "False", "SecretMissing", "2", "1234"]
    assert re.fullmatch(r"\d+m(\d+s)?", values[5])
    assert values[6] == "7"


def test_kubectl_get_shows_a_listener(api: Api, namespace: str) -> None:
    _created(api, namespace, FULL_LISTENER, _LISTENER_STATUS)
    headings, values = _table(_said(api, "get", "obl", "--namespace", namespace))
    assert headings == ["NAME", "READY", "REASON", "QUEUE", "WORKERS", "BACKLOG", "DLQ", "AGE"]
    assert values[:7] == ["send-welcome-mail", "True", "Ready", "mails", "2", "55", "3"]


def test_kubectl_get_of_the_category_shows_both(api: Api, namespace: str) -> None:
    _created(api, namespace, RELAY)
    _created(api, namespace, LISTENER)
    names = _said(api, "get", "outbox", "--namespace", namespace, "--output", "name").split()
    assert names == ["outboxlistener.outbox.dev/send-welcome-mail", "outboxrelay.outbox.dev/shop"]


def test_kubectl_explain_reads_well(api: Api) -> None:
    said = " ".join(_said(api, "explain", "outboxrelay.spec.database").split())
    assert "FIELD: database <Object>" in said
    assert "DESCRIPTION: The Postgres that has the outbox table. FIELDS:" in said
    assert "secretRef <Object> -required- The Secret with the credentials: a key `uri`" in said
    assert "enum: Create, Check Create makes the table where it is missing. Check only looks" in said
    assert "table <string> The outbox table, with its schema where that is not on the search path" in said


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_every_field_is_explained(definition: Any) -> None:
    [version] = definition.manifest()["spec"]["versions"]
    whole = version["schema"]["openAPIV3Schema"]
    assert whole["description"]
    undocumented = list(_undocumented(whole["properties"]["spec"], "spec"))
    undocumented += list(_undocumented(whole["properties"]["status"], "status"))
    # What Kubernetes itself documents is only named here.
    assert [path for path in undocumented if "[]." not in path or ".template." not in path] == []


def _undocumented(schema: Manifest, path: str) -> list[str]:
    here = [] if schema.get("description") else [path]
    fields = [_undocumented(each, f"{path}.{name}") for name, each in schema.get("properties", {}).items()]
    inside = schema.get("items", {})
    items = _undocumented({"description": "-", **inside}, f"{path}[]") if inside else []
    return [*here, *(found for each in fields for found in each), *items]


def test_kubectl_scale_scales_a_relay(api: Api, namespace: str) -> None:
    stored = _created(api, namespace, RELAY, _RELAY_STATUS)
    _said(api, "scale", "obr/shop", "--replicas=4", "--namespace", namespace)
    assert api.get(stored)["spec"]["replicas"] == 4


def test_kubectl_scale_scales_the_workers_of_a_listener(api: Api, namespace: str) -> None:
    stored = _created(api, namespace, FULL_LISTENER)
    _said(api, "scale", "obl/send-welcome-mail", "--replicas=4", "--namespace", namespace)
    assert api.get(stored)["spec"]["worker"] == {**stored["spec"]["worker"], "replicas": 4}


def test_kubectl_scale_refuses_a_listener_without_workers(api: Api, namespace: str) -> None:
    stored = _created(api, namespace, LISTENER)
    done = api.kubectl("scale", "obl/send-welcome-mail", "--replicas=4", "--namespace", namespace)
    assert done.returncode == 1
    assert "spec.worker.image: Required value" in done.stderr
    assert "worker" not in api.get(stored)["spec"]


def test_a_scaler_finds_the_pods_by_the_status(api: Api, namespace: str) -> None:
    _created(api, namespace, RELAY, _RELAY_STATUS)
    path = f"/apis/outbox.dev/v1alpha1/namespaces/{namespace}/outboxrelays/shop/scale"
    scale = api.request("GET", path)
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 3, "selector": "app=shop"}


@pytest.mark.parametrize(("manifest", "status"), [(RELAY, _RELAY_STATUS), (FULL_LISTENER, _LISTENER_STATUS)])
def test_spec_and_status_have_a_writer_each(
    api: Api, namespace: str, manifest: Manifest, status: Manifest
) -> None:
    stored = _created(api, namespace, manifest, status)
    spoiled = {**changed(stored, {"paused": not stored["spec"]["paused"]}), "status": {"parked": 99}}
    if "parked" not in status:
        spoiled["status"] = {"backlog": 99}
    by_user = api.replace(spoiled)
    assert by_user["status"] == stored["status"]
    assert by_user["metadata"]["generation"] == 2
    by_operator = api.replace(
        {**changed(by_user, {"paused": stored["spec"]["paused"]}), "status": {"backlog": 99}}, "/status"
    )
    assert by_operator["spec"] == by_user["spec"]
    assert by_operator["status"]["backlog"] == 99
    assert by_operator["metadata"]["generation"] == 2


def test_two_conditions_of_a_type_are_refused(api: Api, namespace: str) -> None:
    stored = _created(api, namespace, RELAY)
    with pytest.raises(RefusedError, match=r"status\.conditions\[1\]: Duplicate value"):
        api.replace({**stored, "status": {"conditions": [_READY, _READY]}}, "/status")


def test_kubectl_apply_says_what_is_wrong(api: Api, namespace: str) -> None:
    bad = changed(LISTENER, {"retryDelays": ["25h"], ".metadata.namespace": namespace})
    done = api.kubectl("apply", "--filename", "-", text=yaml.safe_dump(bad))
    assert done.returncode == 1
    assert "spec.retryDelays[0]: Invalid value: " in done.stderr
    assert "must be a duration from 1ms to 24h; write whole numbers with h, m, s or ms" in done.stderr
