"""Events as the API server takes them."""

from datetime import UTC, datetime

from outbox_operator.cluster.events import Reference, manifest
from outbox_operator.cluster.kinds import RELAY
from outbox_operator.resources.metadata import Metadata
from tests.hostile import ALL

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
_ABOUT = Reference.to(RELAY, Metadata(name="main", namespace="shop", uid="u", resource_version="7"))


def test_an_event_is_about_one_object() -> None:
    found = manifest(_ABOUT, "Warning", "Unreachable", "the broker is away", _NOW)
    assert found["metadata"] == {"namespace": "shop", "generateName": "main."}
    assert found["involvedObject"] == {
        "apiVersion": "outbox.dev/v1alpha1",
        "kind": "OutboxRelay",
        "namespace": "shop",
        "name": "main",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert (found["type"], found["reason"], found["message"]) == (
        "Warning",
        "Unreachable",
        "the broker is away",
    )
    assert found["reportingComponent"] == "outbox-operator"
    assert found["lastTimestamp"] == "2026-01-02T03:04:05Z"


def test_a_long_message_is_cut_at_a_character() -> None:
    message = manifest(_ABOUT, "Normal", "Ready", "ü" * 2000, _NOW)["message"]
    assert len(message.encode()) <= 1024
    assert message.endswith("ü…")


def test_a_message_is_escaped() -> None:
    message = manifest(_ABOUT, "Warning", "Unreachable", ALL, _NOW)["message"]
    assert message.startswith("\\x1b[31m")
    assert message.isprintable()
