"""`outbox dev` without a cluster and a real API server refuse the same manifests, at the same fields."""

import re

import pytest

from outbox_cli.dev.validation import Problem, parsed, problems
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
    Update,
    changed,
)

_ODD = [
    Case(RELAY, {".metadata.name": "Shop"}, "", ""),
    Case(RELAY, {".metadata.name": "n" * 254}, "", ""),
    Case(RELAY, {".metadata.name": GONE}, "", ""),
    Case(RELAY, {".metadata.nam": "x"}, "", ""),
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
    Case(LISTENER, {"bindingKeys": [None, 1, 1.5, True]}, "", ""),
    Case(LISTENER, {"bindingKeys": ["a", "a", "a"]}, "", ""),
    Case(LISTENER, {"retryDelays": ["1s"] * 101}, "", ""),
    Case(LISTENER, {"unknown": 1, "other": 2, "bindingKeys": []}, "", ""),
    Case(LISTENER, {"worker": {"image": ""}, "handler": "x y"}, "", ""),
    Case(LISTENER, {".metadata.name": GONE, "bindingKeys": []}, "", ""),
]
"""Mistakes of other sorts, and several at once."""

_OF_METADATA = [
    *(
        Case(RELAY, {".metadata.labels": {key: "x"}}, "", "")
        for key in ("a b", "", "/a", "a/", "a/b/c", "k" * 64, "P" * 254 + "/" + "-" * 64)
    ),
    *(
        Case(RELAY, {".metadata.labels": {"a": value}}, "", "")
        for value in ("x y", "x\n", "x\u00a0y", "v" * 64, "ä" * 32)
    ),
    Case(RELAY, {".metadata.annotations": {"a b": "x", "A/B": "this may be"}}, "", ""),
    Case(RELAY, {".metadata.name": "Shop", ".metadata.labels": {"a": "-", "b c": "ä"}}, "", ""),
    Case(RELAY, {".metadata.labels": {"a": "x y"}, "replicas": "x"}, "", ""),
]
"""What Kubernetes wants of any object."""

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
    [*RULES, *BOUNDS, *ONLY_IN_THE_CLUSTER, *_ODD, *_OF_METADATA, *_BESIDE_A_RULE],
    ids=lambda case: case.name,
)
def test_what_the_api_server_refuses_is_refused_at_a_field_that_it_names(
    api: Api, namespace: str, case: Case
) -> None:
    manifest = changed(case.bad, {".metadata.namespace": namespace})
    with pytest.raises(RefusedError) as raised:
        api.create(manifest)
    assert _agree(problems(manifest), raised.value)


@pytest.mark.parametrize("update", _UPDATES, ids=lambda update: update.name)
def test_a_change_that_the_api_server_refuses_is_refused(api: Api, namespace: str, update: Update) -> None:
    manifest = changed(update.manifest, {".metadata.namespace": namespace})
    stored = api.create(manifest)
    with pytest.raises(RefusedError) as raised:
        api.replace(changed(stored, update.changes))
    assert _agree(problems(changed(manifest, update.changes), parsed(manifest)), raised.value)


def _agree(found: list[Problem], refusal: RefusedError) -> bool:
    """True if a problem is at a field of which the API server's text speaks, or around it or in it."""
    ours = {".".join(part for part in problem.path if isinstance(part, str)) for problem in found}
    named = re.findall(r"\b(?:metadata|spec)(?:\.\w+|\[\d+\])*(?=\W)", str(refusal))
    theirs = {re.sub(r"\[\d+\]", "", name) for name in named}
    return any(our.startswith(their) or their.startswith(our) for our in ours for their in theirs)
