"""`outbox dev` without a cluster and a real API server: the same words about the same manifests."""

import json
import re

import pytest

from outbox_cli.dev.admission import MODELS, refusals
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.manifests import (
    BOUNDS,
    FULL_LISTENER,
    GONE,
    LISTENER,
    ONLY_IN_THE_CLUSTER,
    RELAY,
    RULES,
    UPDATES,
    Case,
    Manifest,
    Update,
    changed,
)

_KINDS = "Invalid value|Required value|Unsupported value|Duplicate value|Too long|Too many"
_NOT_LOOKED_AT = "<nil>: Invalid value: null: some validation rules were not checked"

_ODD = [
    Case(RELAY, {".metadata.name": "Shop"}, "", ""),
    Case(RELAY, {".metadata.name": "n" * 254}, "", ""),
    Case(RELAY, {".metadata.name": GONE}, "", ""),
    Case(RELAY, {".metadata.nam": "x"}, "", ""),
    Case(RELAY, {".metadata.labels": {"a": 1}}, "", ""),
    Case(RELAY, {".spec": None}, "", ""),
    Case(RELAY, {"database": ["x"]}, "", ""),
    Case(RELAY, {"replicas": 1.5}, "", ""),
    Case(RELAY, {"listen": "yes"}, "", ""),
    Case(RELAY, {"replicas": -1, "lanes": 33, "database.table": "a.b.c"}, "", ""),
    Case(RELAY, {"exchange": "amq.kä", "pollInterval": "x"}, "", ""),
    Case(RELAY, {"template.labels": {"a": 1}}, "", ""),
    Case(RELAY, {"template.env": [{"name": 1}, {"name": ""}]}, "", ""),
    Case(RELAY, {"template.env": ["A=1", "B=2"]}, "", ""),
    Case(RELAY, {"template.env": [{"value": "1"}, {"value": "2"}]}, "", ""),
    Case(RELAY, {"template.env": [{"name": {"a": 1}}]}, "", ""),
    Case(RELAY, {"template.labels": {"a": {"b": 1}}}, "", ""),
    Case(RELAY, {"template.imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "", ""),
    Case(RELAY, {"unroutable": False, "expired": 5, "lanes": False}, "", ""),
    Case(RELAY, {"replicas": 2**64}, "", ""),
    Case(RELAY, {".status": {"invented": 1, "backlog": -1}}, "", ""),
    Case(LISTENER, {"bindingKeys": [None, 1, 1.5, True]}, "", ""),
    Case(LISTENER, {"bindingKeys": ["a", "a", "a"]}, "", ""),
    Case(LISTENER, {"retryDelays": ["1s"] * 101}, "", ""),
    Case(LISTENER, {"unknown": 1, "other": 2, "bindingKeys": []}, "", ""),
    Case(LISTENER, {"worker": {"image": ""}, "handler": "x y"}, "", ""),
    Case(LISTENER, {".metadata.name": GONE, "bindingKeys": []}, "", ""),
]
"""Mistakes of other sorts, and several at once."""

_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "shop", "uid": "1"}
_BAD_OWNERS: list[list[Manifest | None]] = [
    [{}],
    [None],
    [{**_OWNER, "apiVersion": "a/b/c", "uid": ""}],
    [{**_OWNER, "apiVersion": "apps/", "controller": None}],
    [{**_OWNER, "kind": "Event", "blockOwnerDeletion": False}],
    [{**_OWNER, "name": name, "controller": True} for name in "abc"],
]

_OF_METADATA = [
    *(
        Case(RELAY, {".metadata.labels": {key: "x"}}, "", "")
        for key in ("a b", "", "/a", "a/", "a/b/c", "A_b/c", "k" * 64, "P" * 254 + "/" + "-" * 64)
    ),
    *(
        Case(RELAY, {".metadata.labels": {"a": value}}, "", "")
        for value in ("x y", "x\n", "x\u00a0y", "v" * 64, "ä" * 32)
    ),
    Case(RELAY, {".metadata.annotations": {"a b": "x", "A/B": "this may be"}}, "", ""),
    Case(RELAY, {".metadata.annotations": {"a": "x" * 2**18}, "exchange": "amq.x"}, "", ""),
    Case(RELAY, {".metadata.name": "Shop", ".metadata.labels": {"a": "-", "b c": "ä"}}, "", ""),
    Case(RELAY, {".metadata.labels": {"a": "x y"}, "replicas": "x"}, "", ""),
    Case(RELAY, {".metadata.labels": {"a": "x y"}, "exchange": "amq.x"}, "", ""),
    Case(RELAY, {".metadata.labels": {"a b": None, "c": None}}, "", ""),
    Case(RELAY, {".metadata.annotations": {"a b": None}}, "", ""),
    *(Case(RELAY, {".metadata.generateName": prefix}, "", "") for prefix in ("Shop", "-", ".a-", "n" * 254)),
    *(
        Case(RELAY, {".metadata.finalizers": finalizers}, "", "")
        for finalizers in (["a b"], ["", None], ["a/b/c", "-"], ["orphan", "foregroundDeletion"])
    ),
    *(Case(RELAY, {".metadata.ownerReferences": owners}, "", "") for owners in _BAD_OWNERS),
    Case(RELAY, {".metadata.ownerReferences": [{}], ".metadata.finalizers": ["-"], "lanes": 0}, "", ""),
]
"""What Kubernetes wants of any object."""

_UNDECODABLE = [
    *(
        Case(RELAY, {f".metadata.{field}": value}, "", "")
        for field, value in (
            ("name", 5),
            ("generateName", ["a"]),
            ("uid", 5),
            ("resourceVersion", 5),
            ("selfLink", True),
            ("generation", "1"),
            ("generation", 1.5),
            ("deletionGracePeriodSeconds", {}),
            ("labels", ["a"]),
            ("annotations", {"b": True, "a": {}}),
            ("finalizers", "a/b"),
            ("finalizers", ["a/b", 5]),
            ("ownerReferences", _OWNER),
            ("ownerReferences", ["a"]),
            ("ownerReferences", [{**_OWNER, "uid": 5}]),
            ("ownerReferences", [{**_OWNER, "controller": "true"}]),
            ("ownerReferences", [{**_OWNER, "namespace": "a"}]),
            ("managedFields", {}),
            ("managedFields", [{"operation": 5}]),
            ("managedFields", [{"time": "now"}]),
            ("deletionTimestamp", 5),
        )
    ),
    *(
        Case(RELAY, {".metadata.creationTimestamp": time}, "", "")
        for time in (
            "",
            "now",
            "2024-1-1",
            "2024-01-01",
            "2024-01-01 00:00:00",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.5+0100",
            "2024-01-01T00:00:00Z0",
            "2024-13-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-01-01T24:00:00Z",
        )
    ),
    Case(RELAY, {".metadata.uid": 5, ".metadata.labels": 5, "replicas": "x"}, "", ""),
    Case(RELAY, {".metadata.invented": 1, ".invented": 2, "invented": 3}, "", ""),
]
"""What is of another type than Go has for it, or of none."""

_BESIDE_A_RULE = [
    *(
        Case(RELAY, {"publishRetry": {"initial": initial}}, "", "")
        for initial in ("x", "", ".", "0", "-2m", "+.5h", "1m1.s", "5us", "2000h", "9999999999h")
    ),
    Case(RELAY, {"publishRetry": {"initial": "x", "maximum": "y"}}, "", ""),
    Case(RELAY, {"publishRetry": {"initial": "2m", "maximum": "1d"}}, "", ""),
    Case(RELAY, {"publishRetry": {"initial": "2m", "maxAttempts": -1}}, "", ""),
    Case(RELAY, {"publishRetry": {"initial": "2m"}, "replicas": "x"}, "", ""),
    Case(LISTENER, {"worker": {"image": "x", "autoscaling": {"min": -1, "max": -2}}}, "", ""),
    Case(LISTENER, {"handler": "x y"}, "", ""),
    Case(LISTENER, {"handler": "x", "retryDelays": ["x"], "limits": {"maxLength": 0}}, "", ""),
    Case(LISTENER, {".metadata.name": "n" * 188, "handler": "x", "bindingKeys": []}, "", ""),
    Case(LISTENER, {".metadata.name": "n" * 188, "queue": "amq.x"}, "", ""),
]
"""A rule about several fields, with another mistake in one of them."""

_UPDATES = [
    *(update for update in UPDATES if update.complaint),
    Update("a queue that may not be", LISTENER, {"queue": "amq.x"}),
    Update("an exchange that may not be", RELAY, {"exchange": "amq.x"}),
    Update("another queue for no topics", LISTENER, {"queue": "mails", "bindingKeys": []}),
    Update("another queue and relay", LISTENER, {"queue": "mails", "relayRef.name": "other"}),
    Update("another queue, no worker", FULL_LISTENER, {"queue": "other", "worker": GONE}),
    Update("another exchange, no number", RELAY, {"exchange": "other", "replicas": -1}),
    Update("another exchange, no duration", RELAY, {"exchange": "other", "publishRetry": {"initial": "x"}}),
    Update("another exchange, no label", RELAY, {"exchange": "other", ".metadata.labels": {"a": "x y"}}),
]


@pytest.mark.parametrize(
    "case",
    [*RULES, *BOUNDS, *ONLY_IN_THE_CLUSTER, *_ODD, *_OF_METADATA, *_UNDECODABLE, *_BESIDE_A_RULE],
    ids=lambda case: case.name,
)
def test_a_mistake_is_refused_in_the_words_of_the_api_server(api: Api, namespace: str, case: Case) -> None:
    manifest = changed(case.bad, {".metadata.namespace": namespace})
    with pytest.raises(RefusedError) as raised:
        api.create(manifest)
    assert sorted(refusals(manifest)) == sorted(_as_kubectl_prints(str(raised.value)))


@pytest.mark.parametrize("update", _UPDATES, ids=lambda update: update.name)
def test_a_forbidden_change_is_refused_in_the_words_of_the_api_server(
    api: Api, namespace: str, update: Update
) -> None:
    manifest = changed(update.manifest, {".metadata.namespace": namespace})
    stored = api.create(manifest)
    with pytest.raises(RefusedError) as raised:
        api.replace(changed(stored, update.changes))
    before = MODELS[manifest["kind"]].model_validate(manifest)
    found = refusals(changed(manifest, update.changes), before)
    assert sorted(found) == sorted(_as_kubectl_prints(str(raised.value)))


@pytest.mark.parametrize(
    "manifest",
    [changed(LISTENER, {"bindingKeys": []}), changed(RELAY, {"lanes": 0, "batchSize": 0})],
    ids=["one mistake", "two mistakes"],
)
def test_they_are_the_words_that_kubectl_prints(api: Api, namespace: str, manifest: Manifest) -> None:
    printed = api.kubectl("create", "--namespace", namespace, "-f", "-", text=json.dumps(manifest)).stderr
    head, *rest = printed.strip().splitlines()
    lines = [f"{head.rstrip()} {line.removeprefix('* ')}" for line in rest] or [head]
    assert sorted(refusals(manifest)) == sorted(lines)


def _as_kubectl_prints(refusal: str) -> list[str]:
    """One line for each complaint, without those that add nothing.

    That is a second one about replicas, from the scale subresource, and that other rules were not looked at.
    """
    head, is_invalid, said = refusal.partition(" is invalid: ")
    if not is_invalid:
        return [refusal]
    kind, name = head.split(".outbox.dev ")
    found = re.split(rf", (?=\S+: (?:{_KINDS}))", said.removeprefix("[").removesuffix("]"))
    return [
        f"The {kind} {name} is invalid: {each}"
        for each in found
        if not each.startswith(".") and not each.startswith(_NOT_LOOKED_AT)
    ]
