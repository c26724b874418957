"""What the API server itself makes of our resources: no webhook, only the schemas."""

import re

import pytest

from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import OutboxListener, OutboxRelay
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.manifests import (
    ACCEPTED,
    BOUNDS,
    ONLY_IN_THE_CLUSTER,
    RULES,
    UPDATES,
    Case,
    Manifest,
    Update,
    changed,
)

_KINDS = "Invalid value|Required value|Unsupported value|Duplicate value|Too long|Too many"
_MODELS = {definition.kind: definition.model for definition in DEFINITIONS}


def _in(namespace: str, manifest: Manifest) -> Manifest:
    return changed(manifest, {".metadata.namespace": namespace})


def _read(manifest: Manifest) -> OutboxRelay | OutboxListener:
    return _MODELS[manifest["kind"]].model_validate(manifest)


@pytest.mark.parametrize("case", [*RULES, *BOUNDS, *ONLY_IN_THE_CLUSTER], ids=lambda case: case.name)
def test_a_bad_manifest_is_refused_with_the_field_and_the_cure(api: Api, namespace: str, case: Case) -> None:
    with pytest.raises(RefusedError) as raised:
        api.create(_in(namespace, case.bad))
    assert case.complaint in str(raised.value)
    if case.where:
        assert {path for path, _ in _complaints(raised.value)} == {case.where}


def _complaints(refusal: RefusedError) -> list[tuple[str, str]]:
    """The fields that are complained of, each with what is wrong."""
    _, _, said = str(refusal).partition(" is invalid: ")
    found = re.split(rf", (?=\S+: (?:{_KINDS}))", said.removeprefix("[").removesuffix("]"))
    # The scale subresource complains too where it is its replicas, of the path that has a dot in front.
    complaints = [
        (path.removeprefix("."), text) for path, _, text in (each.partition(": ") for each in found)
    ]
    # Where a type or a bound is wrong the server adds that it did not look at the rest.
    return [(path, text) for path, text in complaints if path != "<nil>"]


@pytest.mark.parametrize(("name", "manifest", "changes"), ACCEPTED, ids=[name for name, _, _ in ACCEPTED])
def test_a_good_manifest_is_stored_with_the_defaults_of_the_types(
    api: Api, namespace: str, name: str, manifest: Manifest, changes: Manifest
) -> None:
    given = _in(namespace, changed(manifest, changes))
    stored = api.create(given)
    without_nulls = {key: value for key, value in given["spec"].items() if value is not None}
    meant = _read({**given, "spec": without_nulls})
    assert stored["spec"] == meant.manifest()["spec"]
    assert _read(stored).spec == meant.spec
    assert "status" not in stored


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.name)
def test_an_update_is_refused_where_messages_would_stay_behind(
    api: Api, namespace: str, update: Update
) -> None:
    stored = api.create(_in(namespace, update.manifest))
    if update.complaint:
        with pytest.raises(RefusedError) as raised:
            api.replace(changed(stored, update.changes))
        assert update.complaint in str(raised.value)
        assert api.get(stored)["spec"] == stored["spec"]
    else:
        updated = api.replace(changed(stored, update.changes))
        assert _read(updated).spec == _read(changed(stored, update.changes)).spec
