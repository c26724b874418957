import re

import pytest

from outbox_operator.children.names import (
    LONGEST_LABEL,
    LONGEST_NAME,
    MANAGED_BY_SELECTOR,
    Owner,
    child_metadata,
    child_name,
    fitted,
    is_child,
    is_former_child,
    labels_of,
    owner_reference,
    selector_text,
)
from outbox_operator.resources import OutboxListener, OutboxRelay
from tests.operator.manifests import LISTENER, RELAY, changed

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _relay(name: str = "shop", uid: str = "u1") -> OutboxRelay:
    return OutboxRelay.model_validate(changed(RELAY, {".metadata.name": name, ".metadata.uid": uid}))


def _listener(name: str = "mail", uid: str = "u2") -> OutboxListener:
    manifest = changed(LISTENER, {".metadata.name": name, ".metadata.uid": uid, "queue": "q"})
    return OutboxListener.model_validate(manifest)


@pytest.mark.parametrize(
    ("owner", "name", "component"),
    [(_relay(), "shop-relay", "outbox-relay"), (_listener(), "mail-worker", "outbox-worker")],
    ids=["relay", "listener"],
)
def test_a_child_has_the_name_of_its_owner_and_what_it_is(owner: Owner, name: str, component: str) -> None:
    assert child_name(owner) == name
    assert labels_of(owner) == {
        "app.kubernetes.io/name": component,
        "app.kubernetes.io/instance": owner.metadata.name,
        "app.kubernetes.io/managed-by": "outbox-operator",
    }


@pytest.mark.parametrize("owner", [_relay("a" * 253), _listener("b." * 120 + "b")], ids=["a relay", "dots"])
def test_names_and_labels_of_a_very_long_owner_are_still_valid(owner: Owner) -> None:
    name, instance = child_name(owner), labels_of(owner)["app.kubernetes.io/instance"]
    assert len(name) <= LONGEST_NAME
    assert len(instance) <= LONGEST_LABEL
    assert _NAME.fullmatch(name)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", instance)


def test_a_text_is_cut_only_where_it_is_too_long() -> None:
    assert fitted("a" * 20, 20) == "a" * 20
    assert re.fullmatch(r"a{11}-[0-9a-f]{8}", fitted("a" * 21, 20))


def test_a_cut_name_never_ends_its_first_part_with_a_dot_or_dash() -> None:
    assert re.fullmatch(r"aaaaaaaa-[0-9a-f]{8}", fitted("aaaaaaaa-.-" + "b" * 20, 20))


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert child_name(_relay("a" * 100 + "1")) != child_name(_relay("a" * 100 + "2"))
    # The end tells a relay from a worker, and it is what is cut.
    assert child_name(_relay("a" * 100)) != child_name(_listener("a" * 100))


def test_a_relay_and_a_listener_of_one_name_have_different_pods() -> None:
    assert labels_of(_relay("shop")) != labels_of(_listener("shop"))


def test_the_selector_is_what_a_query_takes() -> None:
    assert selector_text(_relay()) == (
        "app.kubernetes.io/instance=shop,app.kubernetes.io/managed-by=outbox-operator,"
        "app.kubernetes.io/name=outbox-relay"
    )
    assert MANAGED_BY_SELECTOR in selector_text(_relay()).split(",")


def test_the_owner_is_the_controller_and_does_not_wait_for_its_children() -> None:
    assert owner_reference(_listener()) == {
        "apiVersion": "outbox.dev/v1alpha1",
        "kind": "OutboxListener",
        "name": "mail",
        "uid": "u2",
        "controller": True,
        "blockOwnerDeletion": False,
    }


def test_what_was_applied_for_an_owner_is_its_child() -> None:
    assert is_child({"metadata": child_metadata(_relay())}, _relay())


def test_a_child_of_an_earlier_resource_of_that_name_is_not_ours() -> None:
    assert not is_child({"metadata": child_metadata(_relay(uid="before"))}, _relay(uid="now"))


def test_a_child_of_an_earlier_resource_is_told_from_that_of_another_resource() -> None:
    now = _relay(uid="now")
    assert is_former_child({"metadata": child_metadata(_relay(uid="before"))}, now)
    assert not is_former_child({"metadata": child_metadata(_relay("other"))}, now)
    assert not is_former_child({"metadata": {"name": "shop-relay", "labels": {"app": "shop"}}}, now)


def test_an_orphan_may_be_adopted_but_somebody_elses_object_may_not() -> None:
    orphan = {**child_metadata(_relay()), "ownerReferences": []}
    assert is_child({"metadata": orphan}, _relay())
    assert not is_child({"metadata": {"name": "shop-relay", "labels": {"app": "shop"}}}, _relay())
    assert not is_child({"metadata": {"name": "shop-relay"}}, _relay())
