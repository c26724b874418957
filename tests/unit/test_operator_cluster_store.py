"""What the watches know."""

from copy import deepcopy
from typing import Any

import pytest

from outbox_operator.cluster.kinds import DEPLOYMENT, LISTENER, RELAY, Kind, Manifest
from outbox_operator.cluster.store import Store, Version
from tests.operator import manifests
from tests.operator.junk import ODD, paths, with_odd

_DEPLOYMENT: Manifest = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "shop"},
    "spec": {"replicas": 1},
    "status": {"replicas": 1},
}


def _object(manifest: Manifest, version: int, uid: str = "u", **metadata: Any) -> Manifest:
    made = deepcopy(manifest)
    made["metadata"] = {
        "namespace": "shop",
        "uid": uid,
        "resourceVersion": str(version),
        "generation": 1,
        **made["metadata"],
        **metadata,
    }
    return made


def _relay(version: int, **metadata: Any) -> Manifest:
    return _object(manifests.RELAY, version, **metadata)


def _listener(version: int, relay: str = "shop", **metadata: Any) -> Manifest:
    made = _object(manifests.LISTENER, version, **metadata)
    made["spec"]["relayRef"]["name"] = relay
    return made


def _told(store: Store) -> list[tuple[Kind, str, str]]:
    events: list[tuple[Kind, str, str]] = []
    store.subscribe(lambda kind, namespace, name: events.append((kind, namespace, name)))
    return events


async def test_a_resource_is_known_as_its_type_and_everybody_is_told() -> None:
    store = Store()
    events = _told(store)
    assert store.put(RELAY, _relay(1))
    assert store.relays["shop", "shop"].spec.exchange == "outbox"
    assert events == [(RELAY, "shop", "shop")]


async def test_a_new_spec_is_news_and_a_new_status_is_not() -> None:
    store = Store()
    store.put(RELAY, _relay(1))
    events = _told(store)
    with_status = {**_relay(2), "status": {"observedGeneration": 1, "backlog": 7}}
    assert not store.put(RELAY, with_status)
    assert store.relays["shop", "shop"].status.backlog == 7
    edited = _relay(3, generation=2)
    edited["spec"]["replicas"] = 3
    assert store.put(RELAY, edited)
    assert store.relays["shop", "shop"].spec.replicas == 3
    assert events == [(RELAY, "shop", "shop")]


async def test_an_annotation_a_finalizer_and_a_deletion_are_news() -> None:
    store = Store()
    store.put(RELAY, _relay(1))
    assert store.put(RELAY, _relay(2, annotations={"a": "b"}))
    assert store.put(RELAY, _relay(3, annotations={"a": "b"}, finalizers=["x"]))
    deleted = _relay(4, annotations={"a": "b"}, finalizers=["x"], deletionTimestamp="2026-01-01T00:00:00Z")
    assert store.put(RELAY, deleted)


async def test_an_older_state_is_passed_over() -> None:
    store = Store()
    store.put(RELAY, _relay(10, labels={"is": "new"}))
    assert not store.put(RELAY, _relay(9, labels={"is": "old"}))
    assert store.relays["shop", "shop"].metadata.labels == {"is": "new"}


async def test_a_resource_that_went_is_forgotten_and_everybody_is_told() -> None:
    store = Store()
    store.put(RELAY, _relay(1))
    events = _told(store)
    assert store.remove(RELAY, _relay(2))
    assert not store.relays
    assert not store.remove(RELAY, _relay(2))
    assert events == [(RELAY, "shop", "shop")]


async def test_the_late_end_of_another_of_that_name_removes_nothing() -> None:
    store = Store()
    store.put(RELAY, _relay(5, uid="second"))
    assert not store.remove(RELAY, _relay(4, uid="first"))
    assert store.relays["shop", "shop"].metadata.uid == "second"


async def test_the_late_answer_to_a_write_does_not_bring_back_what_went() -> None:
    store = Store()
    store.put(RELAY, _relay(1))
    store.remove(RELAY, _relay(3))
    assert not store.put(RELAY, _relay(2))
    assert not store.relays


async def test_a_renewal_makes_nothing_known_that_was_not() -> None:
    store = Store()
    assert not store.renew(RELAY, _relay(1))
    store.put(RELAY, _relay(1))
    assert not store.renew(RELAY, _relay(2, uid="another", labels={"a": "b"}))
    assert store.renew(RELAY, _relay(2, labels={"a": "b"}))
    assert store.relays["shop", "shop"].metadata.labels == {"a": "b"}


async def test_a_deployment_that_got_its_label_back_comes_back() -> None:
    store = Store()
    store.put(DEPLOYMENT, _object(_DEPLOYMENT, 1))
    store.remove(DEPLOYMENT, _object(_DEPLOYMENT, 2))
    assert store.put(DEPLOYMENT, _object(_DEPLOYMENT, 3))
    assert ("shop", "shop") in store.deployments


async def test_listeners_are_found_by_their_relay() -> None:
    store = Store()
    store.put(LISTENER, _listener(1, "one", name="a", uid="a"))
    store.put(LISTENER, _listener(2, "one", name="b", uid="b"))
    store.put(LISTENER, _listener(3, "two", name="c", uid="c"))
    assert [found.metadata.name for found in store.listeners_of("shop", "one")] == ["a", "b"]
    assert not store.listeners_of("other", "one")
    store.remove(LISTENER, _listener(4, "one", name="a", uid="a"))
    # Made anew with another relay, before its end was told.
    store.put(LISTENER, _listener(5, "two", name="b", uid="b2"))
    assert not store.listeners_of("shop", "one")
    assert sorted(found.metadata.name for found in store.listeners_of("shop", "two")) == ["b", "c"]


async def test_claimants_are_those_that_ask_for_a_queue_by_name_or_by_default_or_for_dead_letters() -> None:
    store = Store()
    by_default, by_name = _listener(1, "one", name="a", uid="a"), _listener(2, "two", name="b", uid="b")
    by_name["spec"]["queue"] = "shop.a.dlq"
    store.put(LISTENER, by_default)
    store.put(LISTENER, by_name)
    assert [found.metadata.name for found in store.claimants("shop.a")] == ["a"]
    assert [found.metadata.name for found in store.claimants("shop.a.dlq")] == ["a", "b"]
    store.remove(LISTENER, by_default)
    assert [found.metadata.name for found in store.claimants("shop.a.dlq")] == ["b"]
    assert not store.claimants("shop.a")


async def test_what_its_type_refuses_is_listed_apart_with_the_reason_and_without_its_values() -> None:
    store = Store()
    store.put(RELAY, _relay(1))
    events = _told(store)
    broken = _relay(2)
    broken["spec"]["replicas"] = "hunter2"
    assert store.put(RELAY, broken)
    assert not store.relays
    invalid = store.invalid[RELAY, "shop", "shop"]
    assert invalid.metadata.path == "shop/shop"
    assert invalid.manifest == broken
    assert "spec.replicas: Input should be a valid integer" in invalid.message
    assert "hunter2" not in invalid.message
    assert events == [(RELAY, "shop", "shop")]
    assert store.versions(RELAY) == {("shop", "shop"): Version("u", "2")}


async def test_a_resource_that_was_put_right_is_invalid_no_more() -> None:
    store = Store()
    broken = _relay(1)
    del broken["spec"]["broker"]
    store.put(RELAY, broken)
    assert store.put(RELAY, _relay(2))
    assert not store.invalid
    assert store.relays


async def test_an_invalid_listener_that_goes_leaves_nothing() -> None:
    store = Store()
    broken = _listener(1)
    broken["spec"]["bindingKeys"] = []
    store.put(LISTENER, broken)
    assert store.remove(LISTENER, _listener(2))
    assert not store.invalid
    assert not store.versions(LISTENER)


async def test_a_deployments_status_is_news_and_its_version_is_not() -> None:
    store = Store()
    store.put(DEPLOYMENT, _object(_DEPLOYMENT, 1))
    assert not store.put(DEPLOYMENT, _object(_DEPLOYMENT, 2))
    assert store.put(DEPLOYMENT, {**_object(_DEPLOYMENT, 3), "status": {"replicas": 1, "readyReplicas": 1}})
    assert store.deployments["shop", "shop"]["status"]["readyReplicas"] == 1
    assert store.versions(DEPLOYMENT) == {("shop", "shop"): Version("u", "3")}


async def test_of_who_wrote_a_deployment_little_is_kept() -> None:
    store = Store()
    fields: Manifest = {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}}
    store.put(
        DEPLOYMENT,
        _object(_DEPLOYMENT, 1, managedFields=[{"manager": "outbox-operator", "fieldsV1": fields}]),
    )
    assert store.deployments["shop", "shop"]["metadata"]["managedFields"] == []


async def test_an_object_is_discarded_only_in_the_state_in_which_it_was_missed() -> None:
    store = Store()
    store.put(RELAY, _relay(1))
    assert not store.discard(RELAY, ("shop", "shop"), Version("u", "0"))
    assert store.discard(RELAY, ("shop", "shop"), Version("u", "1"))
    assert not store.relays


_REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {},
        [None],
        ["x"],
        [{"fieldsV1": _REPLICAS}],
        [{"manager": None, "fieldsV1": _REPLICAS}],
        [{"manager": "hpa", "fieldsV1": None}],
        [{"manager": "hpa", "fieldsV1": {"f:spec": None}}],
        [{"manager": "hpa", "fieldsV1": {"f:spec": "f:replicas"}}],
        [{"manager": "hpa"}],
        7,
        "x",
    ],
)
async def test_a_deployment_with_odd_managed_fields_is_known(fields: Any) -> None:
    store = Store()
    assert store.put(DEPLOYMENT, _object(_DEPLOYMENT, 1, managedFields=fields))
    assert store.deployments["shop", "shop"]["metadata"]["managedFields"] == []


async def test_nobody_waits_for_an_object_that_cannot_be_read() -> None:
    store, odd = Store(), _relay(1)
    odd["metadata"]["labels"] = "none"
    with pytest.raises(ValueError, match="labels"):
        store.put(RELAY, odd)
    store.pass_over(RELAY, odd)
    assert store.versions(RELAY) == {("shop", "shop"): Version("u", "1")}
    assert store.put(RELAY, _relay(2))
    assert store.versions(RELAY) == {("shop", "shop"): Version("u", "2")}
    store.pass_over(RELAY, odd)
    store.remove(RELAY, _relay(3))
    assert store.versions(RELAY) == {}


def test_an_object_without_a_name_is_passed_over() -> None:
    store = Store()
    for odd in ({}, {"metadata": None}, {"metadata": {"name": 1}}):
        store.pass_over(RELAY, odd)
    assert store.versions(RELAY) == {}


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize(("kind", "bare"), [(RELAY, manifests.RELAY), (LISTENER, manifests.LISTENER)])
async def test_an_odd_field_harms_no_other_object(kind: Kind, bare: Manifest, odd: Any) -> None:
    store = Store()
    events, manifest = _told(store), _object(bare, 1)
    for number, path in enumerate(paths(manifest), start=2):
        changed = with_odd(manifest, path, odd)
        try:
            store.put(kind, changed)
        except (ValueError, TypeError, KeyError, AttributeError):
            # What the boundary around the watches contains.
            store.pass_over(kind, changed)
        events.clear()
        assert store.put(kind, _object(bare, number, uid="v", namespace="healthy", generation=number))
        assert events == [(kind, "healthy", bare["metadata"]["name"])]


@pytest.mark.parametrize("odd", ["²", "9" * 5000, "", "٣"])
def test_an_odd_version_is_newer_than_any_other(odd: str) -> None:
    assert Version("u", odd).is_newer_than(Version("u", "1"))
    assert Version("u", "1").is_newer_than(Version("u", odd))
    assert not Version("u", odd).is_newer_than(Version("u", odd))
