"""`outbox dev` without a cluster and a real API server: the same words about the same manifests."""

import json
import re

import pytest

from outbox_cli.dev.admission import MODELS, refusals
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.manifests import (
    BOUNDS,
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
    Case(RELAY, {"template.imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "", ""),
    Case(LISTENER, {"bindingKeys": [None, 1, 1.5, True]}, "", ""),
    Case(LISTENER, {"retryDelays": ["1s"] * 101}, "", ""),
    Case(LISTENER, {"unknown": 1, "other": 2, "bindingKeys": []}, "", ""),
    Case(LISTENER, {"worker": {"image": ""}, "handler": "x y"}, "", ""),
]
"""Mistakes of other sorts, and several at once."""


@pytest.mark.parametrize("case", [*RULES, *BOUNDS, *ONLY_IN_THE_CLUSTER, *_ODD], ids=lambda case: case.name)
def test_a_mistake_is_refused_in_the_words_of_the_api_server(api: Api, namespace: str, case: Case) -> None:
    manifest = changed(case.bad, {".metadata.namespace": namespace})
    with pytest.raises(RefusedError) as raised:
        api.create(manifest)
    assert sorted(refusals(manifest)) == sorted(_as_kubectl_prints(str(raised.value)))


@pytest.mark.parametrize(
    "update", [each for each in UPDATES if each.complaint], ids=lambda update: update.name
)
def test_a_forbidden_change_is_refused_in_the_words_of_the_api_server(
    api: Api, namespace: str, update: Update
) -> None:
    manifest = changed(update.manifest, {".metadata.namespace": namespace})
    stored = api.create(manifest)
    with pytest.raises(RefusedError) as raised:
        api.replace(changed(stored, update.changes))
    before = MODELS[manifest["kind"]].model_validate(manifest)
    assert refusals(changed(manifest, update.changes), before) == _as_kubectl_prints(str(raised.value))


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
