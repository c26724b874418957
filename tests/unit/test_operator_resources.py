from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from outbox.table import TableName
from outbox.topology import check_exchange, check_queue
from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import OutboxListener, OutboxRelay, relay
from outbox_operator.resources.names import LONGEST_EXCHANGE, LONGEST_QUEUE
from outbox_worker.settings import Settings as WorkerSettings
from tests.operator.manifests import (
    ACCEPTED,
    BOUNDS,
    FULL_LISTENER,
    FULL_RELAY,
    LISTENER,
    RELAY,
    RULES,
    Case,
    Manifest,
    changed,
)

_MODELS = {definition.kind: definition.model for definition in DEFINITIONS}


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.name)
def test_a_rule_is_kept_without_a_cluster_and_in_the_same_words(case: Case) -> None:
    with pytest.raises(ValidationError) as raised:
        _MODELS[case.manifest["kind"]].model_validate(case.bad)
    [error] = raised.value.errors()
    assert case.complaint in error["msg"]
    assert _path(error["loc"]) == case.where


@pytest.mark.parametrize("case", BOUNDS, ids=lambda case: case.name)
def test_a_bound_is_kept_without_a_cluster(case: Case) -> None:
    with pytest.raises(ValidationError) as raised:
        _MODELS[case.manifest["kind"]].model_validate(case.bad)
    assert [_path(error["loc"]) for error in raised.value.errors()] == [case.where]


def _path(places: tuple[Any, ...]) -> str:
    parts = (f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)
    return "".join(parts).removeprefix(".")


@pytest.mark.parametrize(("name", "manifest", "changes"), ACCEPTED, ids=[name for name, _, _ in ACCEPTED])
def test_a_good_manifest_survives_being_read_and_written(
    name: str, manifest: Manifest, changes: Manifest
) -> None:
    given = changed(manifest, {path: value for path, value in changes.items() if value is not None})
    read = _MODELS[given["kind"]].model_validate(given)
    assert read.model_validate(read.manifest()) == read


@pytest.mark.parametrize("manifest", [FULL_RELAY, FULL_LISTENER], ids=["relay", "listener"])
def test_a_full_manifest_is_written_as_it_was_read(manifest: Manifest) -> None:
    read = _MODELS[manifest["kind"]].model_validate(manifest)
    assert read.manifest()["spec"] == manifest["spec"]


@pytest.mark.parametrize("manifest", [FULL_RELAY, FULL_LISTENER], ids=["relay", "listener"])
def test_a_full_manifest_leaves_nothing_at_its_default(manifest: Manifest) -> None:
    spec = _MODELS[manifest["kind"]].model_validate(manifest).spec
    assert spec.model_fields_set == set(type(spec).model_fields)
    for name, field in type(spec).model_fields.items():
        assert getattr(spec, name) != field.get_default(call_default_factory=True), name


def test_a_field_of_a_newer_version_is_left_alone() -> None:
    read = OutboxRelay.model_validate(changed(RELAY, {"inventedLater": True}))
    assert read.spec == OutboxRelay.model_validate(RELAY).spec


def test_no_retry_is_not_the_default_retry() -> None:
    read = OutboxListener.model_validate(changed(LISTENER, {"retryDelays": []}))
    assert read.spec.retry_delays == ()
    assert read.manifest()["spec"]["retryDelays"] == []


def test_a_value_does_not_change() -> None:
    read = OutboxRelay.model_validate(RELAY)
    with pytest.raises(ValidationError, match="frozen"):
        read.spec.replicas = 5


def test_the_longest_names_are_those_of_the_topology() -> None:
    check_exchange("e" * LONGEST_EXCHANGE)
    check_queue("q" * LONGEST_QUEUE)
    with pytest.raises(ValueError, match="shorten it"):
        check_exchange("e" * (LONGEST_EXCHANGE + 1))
    with pytest.raises(ValueError, match="shorten it"):
        check_queue("q" * (LONGEST_QUEUE + 1))


@given(st.from_regex(relay._TABLE, fullmatch=True))
def test_every_table_that_the_schema_lets_through_can_be(name: str) -> None:
    TableName.parse(name)


def test_a_listener_has_the_defaults_of_a_worker() -> None:
    spec = OutboxListener.model_validate(changed(LISTENER, {"worker": {"image": "shop:1"}})).spec
    assert spec.worker is not None
    worker = WorkerSettings()
    assert spec.worker.prefetch == worker.prefetch_count
    assert spec.worker.shutdown_timeout == timedelta(seconds=worker.shutdown_timeout)
    assert spec.retry_delays == worker.policy.delays()
