"""What `outbox dev` refuses, and what it takes; tests/operator compares its words with an API server's."""

import pytest

from outbox_cli.dev.admission import MODELS, refusals
from tests.operator.manifests import (
    ACCEPTED,
    BOUNDS,
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


@pytest.mark.parametrize("case", [*RULES, *BOUNDS, *ONLY_IN_THE_CLUSTER], ids=lambda case: case.name)
def test_a_mistake_is_told_once_with_its_cure(case: Case) -> None:
    [line] = refusals(case.bad)
    assert case.complaint in line


@pytest.mark.parametrize(("name", "manifest", "changes"), ACCEPTED, ids=[name for name, _, _ in ACCEPTED])
def test_a_good_manifest_is_taken(name: str, manifest: Manifest, changes: Manifest) -> None:
    assert refusals(changed(manifest, changes)) == []


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.name)
def test_a_change_is_refused_where_messages_would_stay_behind(update: Update) -> None:
    before = MODELS[update.manifest["kind"]].model_validate(update.manifest)
    said = "\n".join(refusals(changed(update.manifest, update.changes), before))
    assert update.complaint in said
    assert bool(said) == bool(update.complaint)


def test_several_mistakes_have_a_line_each() -> None:
    assert refusals(changed(RELAY, {"lanes": 0, "exchange": "amq.käse"})) == [
        'The OutboxRelay "shop" is invalid: spec.lanes: Invalid value: 0: '
        "spec.lanes in body should be greater than or equal to 1",
        'The OutboxRelay "shop" is invalid: spec.exchange: Invalid value: "string": '
        "must consist of ASCII letters, digits, spaces and -_.:@#,/+",
        'The OutboxRelay "shop" is invalid: spec.exchange: Invalid value: "string": '
        "must not start with amq., which belongs to the broker; choose another name",
    ]


def test_a_version_that_nobody_serves_is_told() -> None:
    assert refusals({**LISTENER, "apiVersion": "outbox.dev/v7"}) == [
        'no matches for kind "OutboxListener" in version "outbox.dev/v7"'
    ]


@pytest.mark.parametrize(
    "metadata",
    ["x", [], {"name": 5}, {"name": "a", "labels": "x"}, {"name": "a", "annotations": {"a": True}}],
)
def test_metadata_of_another_type_is_a_mistake_and_no_fault(metadata: object) -> None:
    [line] = refusals({**LISTENER, "metadata": metadata})
    assert "cannot be handled as a OutboxListener: json: cannot unmarshal" in line


def test_a_name_to_be_generated_is_refused_as_kubectl_apply_does() -> None:
    assert refusals({**RELAY, "metadata": {"generateName": "shop-"}}) == [
        "from shop-: cannot use generate name with apply"
    ]


def test_what_is_said_of_a_status_is_not_looked_at() -> None:
    assert refusals({**RELAY, "status": {"backlog": -1}}) == []
    assert refusals({**RELAY, "status": "x"}) == []


@pytest.mark.parametrize(("kind", "problem"), [(None, "not set"), (5, "isn't string type")])
def test_a_kind_that_is_none_is_told_as_kubectl_does(kind: object, problem: str) -> None:
    assert refusals({**RELAY, "kind": kind}) == [f"error validating data: kind {problem}"]


def test_a_whole_number_with_a_point_is_taken() -> None:
    assert refusals(changed(RELAY, {"replicas": 2.0})) == []
