"""What `outbox dev` refuses, and what it accepts; tests/operator compares it with an API server."""

from typing import Any

import pytest

from outbox_cli.dev.validation import Problem, parsed, problems
from tests.operator.manifests import (
    ACCEPTED,
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


def paths(found: list[Problem]) -> list[str]:
    return [str(Problem(problem.path, "")).removesuffix(": ") for problem in found]


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.name)
def test_a_broken_rule_is_reported_once_with_its_cure(case: Case) -> None:
    [problem] = problems(case.bad)
    assert case.complaint in problem.message


@pytest.mark.parametrize(
    "case", [case for case in [*RULES, *BOUNDS] if case.where], ids=lambda case: case.name
)
def test_a_mistake_is_reported_at_its_field(case: Case) -> None:
    assert paths(problems(case.bad)) == [case.where]


@pytest.mark.parametrize("case", ONLY_IN_THE_CLUSTER, ids=lambda case: case.name)
def test_what_the_models_ignore_is_refused_by_the_schema(case: Case) -> None:
    [problem] = problems(case.bad)
    expected = case.where or case.complaint.split('"')[1]
    assert paths([problem]) == [expected]


@pytest.mark.parametrize(("name", "manifest", "changes"), ACCEPTED, ids=[name for name, _, _ in ACCEPTED])
def test_a_good_manifest_is_accepted(name: str, manifest: Manifest, changes: Manifest) -> None:
    assert problems(changed(manifest, changes)) == []


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.name)
def test_a_change_is_refused_if_messages_would_stay_behind(update: Update) -> None:
    found = problems(changed(update.manifest, update.changes), parsed(update.manifest))
    assert update.complaint.removeprefix("spec.exchange: Invalid value: ") in "\n".join(map(str, found))
    assert bool(found) == bool(update.complaint)


def test_every_mistake_is_reported() -> None:
    assert list(map(str, problems(changed(RELAY, {"lanes": 0, "exchange": "amq.x", "replica": 2})))) == [
        "spec.replica: unknown field; did you mean replicas?",
        "spec.exchange: must not start with amq., which belongs to the broker; choose another name",
        "spec.lanes: input should be greater than or equal to 1",
    ]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ({**LISTENER, "apiVersion": "outbox.dev/v7"}, "apiVersion: must be outbox.dev/v1alpha1, and not"),
        ({**RELAY, "kind": None}, "kind: must be OutboxRelay or OutboxListener, and not None"),
        ({**RELAY, "kind": 5}, "kind: must be OutboxRelay or OutboxListener, and not 5"),
        ({**RELAY, "metadata": "x"}, "metadata: must be an object with a name"),
        ({**RELAY, "metadata": {"generateName": "shop-"}}, "metadata.name: is required"),
        ({**RELAY, "spec": "x"}, "spec: input should be an object"),
        ({**RELAY, "sepc": {}}, "sepc: unknown field; did you mean spec?"),
        (changed(RELAY, {".metadata.nam": "x"}), "metadata.nam: unknown field; did you mean name?"),
        (changed(RELAY, {".metadata.name": 5}), "metadata.name: input should be a valid string"),
        (changed(RELAY, {".metadata.labels": {"a": 1}}), "metadata.labels.a: input should be a valid string"),
        (changed(RELAY, {".metadata.labels": {"a": "x y"}}), "metadata.labels.a: must have at most 63"),
        (changed(RELAY, {".metadata.annotations": {"a/b/c": "x"}}), "metadata.annotations.a/b/c: the key"),
        (changed(RELAY, {"listen": "yes"}), "spec.listen: input should be a valid boolean"),
        (changed(RELAY, {"replicas": 1.5}), "spec.replicas: input should be a valid integer"),
        (changed(RELAY, {"replicas": "2"}), "spec.replicas: input should be a valid integer"),
    ],
)
def test_a_wrong_type_or_name_is_reported(manifest: Manifest, problem: str) -> None:
    [found] = map(str, problems(manifest))
    assert found.startswith(problem)


@pytest.mark.parametrize(
    "changes", [{".status": "x"}, {"replicas": 2.0}, {"template.labels": None}, {".status": GONE}]
)
def test_what_the_api_server_ignores_is_accepted(changes: dict[str, Any]) -> None:
    assert problems(changed({**RELAY, "status": {"backlog": -1}}, changes)) == []
