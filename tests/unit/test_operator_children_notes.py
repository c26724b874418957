from datetime import timedelta
from typing import Any

import pytest

from outbox_operator.children.family import Facilities, children
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.notes import (
    CHILDREN,
    NOTHING_RETIRED,
    RETIRED_SECRETS,
    children_of,
    has_retired,
    live_delays,
    retired_secrets,
    secret_of,
    with_notes,
)
from outbox_operator.children.workload import relay_workload, worker_workload
from outbox_operator.resources import OutboxListener, OutboxRelay
from tests.operator.manifests import LISTENER, RELAY, changed

POLICED = Facilities(network_policies=True)


def noted(
    secret: str,
    live: Manifest | None = None,
    facilities: Facilities = Facilities(),  # noqa: B008 - frozen
    **spec: Any,
) -> Manifest:
    """The Deployment of a relay whose pods have this Secret, after one that is there."""
    relay = OutboxRelay.model_validate(changed(RELAY, {".metadata.namespace": "shop", **spec}))
    family = children(relay_workload(relay, image="i", secret_name=secret, has_ca=False), facilities)
    [desired] = [manifest for manifest in family.wanted if manifest["kind"] == "Deployment"]
    return with_notes(desired, live, family)


@pytest.mark.parametrize(
    ("spec", "facilities", "kinds"),
    [
        ({}, Facilities(), ()),
        ({"replicas": 2}, Facilities(), ("PodDisruptionBudget",)),
        ({"replicas": 2}, POLICED, ("NetworkPolicy", "PodDisruptionBudget")),
    ],
)
def test_a_deployment_tells_what_was_made_beside_it(
    spec: dict[str, Any], facilities: Facilities, kinds: tuple[str, ...]
) -> None:
    assert children_of(noted("one", facilities=facilities, **spec)) == kinds


def test_the_secret_is_the_one_that_has_the_brokers_url() -> None:
    deployment = noted("one")
    assert secret_of(deployment) == "one"
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "OUTBOX_BROKER_URL", "value": "written by hand"}]
    assert secret_of(deployment) is None
    del container["env"]
    assert secret_of(deployment) is None


def test_a_secret_that_is_replaced_is_noted_until_it_is_told_to_be_gone() -> None:
    first = noted("one")
    assert RETIRED_SECRETS not in first["metadata"]["annotations"]
    assert retired_secrets(noted("one", first)) == ()
    second = noted("two", first)
    assert retired_secrets(second) == ("one",)
    assert retired_secrets(noted("two", second)) == ("one",)
    third = noted("three", second)
    assert retired_secrets(third) == ("one", "two")
    del third["metadata"]["annotations"][RETIRED_SECRETS]
    assert retired_secrets(noted("three", third)) == ()


def test_a_secret_that_is_in_use_again_is_not_noted_twice() -> None:
    back = noted("one", noted("two", noted("one")))
    assert retired_secrets(back) == ("two",)


def test_what_else_is_annotated_stays() -> None:
    deployment = noted("one")
    assert deployment["metadata"]["annotations"].keys() >= {CHILDREN, "outbox.dev/inputs"}


def test_a_deployment_without_notes_tells_of_nothing() -> None:
    bare: Manifest = {"metadata": {"name": "shop-relay"}}
    assert children_of(bare) == retired_secrets(bare) == ()


def test_the_patch_for_the_end_removes_the_note_alone() -> None:
    notes = {"outbox.dev/retired-secrets": None, "outbox.dev/retired-delays": None}
    assert {"metadata": {"annotations": notes}} == NOTHING_RETIRED


def worker(*delays: str, live: Manifest | None = None, **spec: Any) -> Manifest:
    """The Deployment of a listener with these delays, after one that is there."""
    listener = OutboxListener.model_validate(
        changed(LISTENER, {".metadata.namespace": "shop", "retryDelays": list(delays), **spec})
    )
    workload = worker_workload(listener, "outbox", "mail", secret_name="s", has_ca=False, replicas=1)  # noqa: S106
    family = children(workload, Facilities())
    [desired] = [manifest for manifest in family.wanted if manifest["kind"] == "Deployment"]
    return with_notes(desired, live, family)


def test_delays_of_pods_of_before_are_noted_until_told_to_be_gone() -> None:
    image = {"worker": {"image": "shop:1"}}
    first = worker("1s", "300ms", **image)
    assert live_delays(first) == (timedelta(seconds=1), timedelta(milliseconds=300))
    second = worker("300ms", "1m", live=first, **image)
    assert live_delays(second) == tuple(timedelta(seconds=each) for each in (0.3, 60, 1))
    assert has_retired(second)
    assert live_delays(worker("1s", "1m", live=second, **image))[-1] == timedelta(milliseconds=300)
    assert not has_retired(first)


def test_pods_that_keep_order_use_no_delays() -> None:
    assert live_delays(worker("1s", ordered=True, worker={"image": "shop:1"})) == ()
    assert live_delays(None) == ()
