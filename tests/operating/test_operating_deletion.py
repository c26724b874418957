"""Deleting resources: what stays on the broker, what goes, what is waited for, and what never hangs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import aio_pika
import pytest

from outbox_operator.cluster import store as cluster_store
from outbox_operator.cluster.errors import ForbiddenError
from outbox_operator.planning.removal import FINALIZER
from outbox_operator.resources import OutboxListener
from tests.operator.control_plane.api import Manifest, RefusedError
from tests.operator.control_plane.bridge import Bridge
from tests.operator.pods import Pods
from tests.operator.site import Site

_POLICIES = ("Retain", "DeleteIfEmpty", "Delete")
_REMOVING = ("DeleteIfEmpty", "Delete")


def _publish(site: Site, exchange: str, key: str) -> None:
    """Put a message on the broker; nothing is returned where nobody takes it."""
    body: Any = {"properties": {}, "routing_key": key, "payload": "{}", "payload_encoding": "string"}
    told = site.broker("POST", f"exchanges/{{vhost}}/{quote(exchange, safe='')}/publish", body)
    assert told["routed"], f"exchange {exchange} had nobody for {key}"


def _purge(site: Site, queue: str) -> None:
    site.broker("DELETE", f"queues/{{vhost}}/{queue}/contents")


async def _counted(site: Site, queue: str, messages: int = 1) -> None:
    """RabbitMQ counts the messages of a quorum queue each 5 s only."""
    await site.until(lambda: site.queues()[queue].get("messages") == messages, f"{messages} in {queue}")


async def _until_gone(site: Site, *manifests: Manifest) -> None:
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        # Several steps, each of which waits for the broker to have counted.
        gone = partial(site.is_gone, manifest)
        await site.until(gone, f"the end of {name}", seconds=120)


async def _until_waiting(site: Site, manifest: Manifest, *words: str) -> str:
    """Wait until the status says what a deletion waits for."""

    def message() -> str | None:
        condition = site.condition(manifest, "TopologyReady")
        said = str(condition.get("message"))
        return said if condition.get("reason") == "Deleting" and all(word in said for word in words) else None

    return str(await site.until(message, f"a deletion that waits for {words}"))


def _told(site: Site, manifest: Manifest, reason: str) -> list[str]:
    return [each["message"] for each in site.events(manifest) if each["reason"] == reason]


def _marks(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {name: metadata[name] for name in ("finalizers", "annotations") if name in metadata}


async def _until_marks(site: Site, manifest: Manifest, marks: dict[str, Any]) -> None:
    await site.until(lambda: _marks(site.get(manifest)) == marks, f"the finalizers and annotations {marks}")


async def _found(site: Site, kind: str, name: str) -> Manifest:
    return dict(await site.until(lambda: site.find(kind, name), f"{kind} {name}"))


async def _ready(site: Site, *manifests: Manifest) -> None:
    for manifest in manifests:
        await site.until_condition(manifest)


def _create(site: Site, *manifests: Manifest) -> None:
    for manifest in manifests:
        site.api.create(manifest)


async def test_what_is_retained_has_no_mark_of_ours_and_goes_without_an_operator(site: Site) -> None:
    relay = site.relay(replicas=1)
    listener = site.listener(worker={"image": "shop:1"})
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await site.until_condition(relay, "TopologyReady")
        await site.until_condition(listener, "TopologyReady")
        deployments = [await _found(site, "Deployment", name) for name in ("shop-relay", "mail-worker")]
    assert _marks(site.get(relay)) == {}
    assert _marks(site.get(listener)) == {}
    assert not any("kopf" in str(_marks(each)) or "finalizers" in _marks(each) for each in deployments)
    before = set(site.queues()), site.exchanges()
    site.delete(relay)
    site.delete(listener)
    assert site.is_gone(relay)
    assert site.is_gone(listener)
    assert (set(site.queues()), site.exchanges()) == before


async def test_a_policy_that_removes_needs_a_finalizer_and_its_change_to_retain_takes_it_away(
    site: Site,
) -> None:
    relay, listener = site.relay(deletionPolicy="Delete"), site.listener(deletionPolicy="DeleteIfEmpty")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, relay, listener)
        for each in (relay, listener):
            assert _marks(site.get(each)) == {"finalizers": [FINALIZER]}
            site.edit(each, deletionPolicy="Retain")
            await _until_marks(site, each, {})
        site.edit(listener, deletionPolicy="Delete")
        await _until_marks(site, listener, {"finalizers": [FINALIZER]})


async def test_the_finalizers_of_others_stay(site: Site) -> None:
    listener = site.listener(deletionPolicy="Delete")
    listener["metadata"]["finalizers"] = ["example.com/theirs"]
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
        assert site.get(listener)["metadata"]["finalizers"] == ["example.com/theirs", FINALIZER]
        site.delete(listener)
        await site.until(
            lambda: site.get(listener)["metadata"]["finalizers"] == ["example.com/theirs"], "theirs alone"
        )
        assert f"{site.namespace}.mail" not in site.queues()
    site.patch(listener, {"metadata": {"finalizers": None}})
    assert site.is_gone(listener)


@pytest.mark.parametrize("suffix", ["", ".dlq"], ids=["queue", "dead-letter queue"])
async def test_delete_if_empty_waits_for_messages_and_says_what_is_left(site: Site, suffix: str) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
        _publish(site, "amq.default", f"{queue}{suffix}")
        await _counted(site, f"{queue}{suffix}")
        await site.until(
            lambda: site.status(listener)["deadLetters" if suffix else "backlog"] == 1, "a status with it"
        )
        site.delete(listener)
        await _until_waiting(site, listener, f'queue "{queue}{suffix}" has 1 message', "purge")
        # Nothing new arrives meanwhile.
        assert site.bindings(queue) == set()
        assert {queue, f"{queue}.dlq"} <= set(site.queues())
        await site.until(lambda: _told(site, listener, "Deleting"), "an Event about it")
        assert site.condition(listener)["reason"] == "Deleting"
        _purge(site, f"{queue}{suffix}")
        await _until_gone(site, listener)
    assert not {queue, f"{queue}.dlq"} & set(site.queues())
    assert len(_told(site, listener, "Deleting")) == 1


async def test_a_message_that_nobody_has_counted_yet_keeps_its_queue(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
        _publish(site, "outbox", "user.created")
        site.delete(listener)
        await _until_waiting(site, listener, queue)
        assert queue in site.queues()
        _purge(site, queue)
        await _until_gone(site, listener)


async def test_delete_if_empty_keeps_a_queue_with_a_message_in_flight(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating(count_seconds=6):
        await _ready(site, listener)
        async with await aio_pika.connect(site.rabbitmq_url) as connection:
            channel = await connection.channel()
            _publish(site, "outbox", "user.created")
            await (await channel.get_queue(queue, ensure=False)).get()
            site.delete(listener)
            await _until_waiting(site, listener, f'queue "{queue}" has 1 message')
            assert queue in site.queues()


async def test_a_dead_letter_that_comes_last_keeps_its_queue(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating(count_seconds=6):
        await _ready(site, listener)
        site.delete(listener)
        await site.until(lambda: queue not in site.queues(), "the end of the queue")
        _publish(site, "amq.default", f"{queue}.dlq")
        await _until_waiting(site, listener, f'queue "{queue}.dlq" has 1 message')
        assert set(site.queues()) == {f"{queue}.dlq"}


async def test_a_dead_letter_queue_is_unbound_before_it_goes(site: Site) -> None:
    """A dead letter that cannot be routed stays with its sender; one in a deleted queue is lost."""
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating(count_seconds=3):
        await _ready(site, listener)
        assert site.bindings(f"{queue}.dlq") == {("outbox.dlx", queue)}
        site.delete(listener)
        closed = {("outbox.dlx", f"{queue}.dlq")}
        await site.until(lambda: site.bindings(f"{queue}.dlq") == closed, "a queue without a route to it")
        assert set(site.queues()) == {f"{queue}.dlq"}
        body: Any = {"properties": {}, "routing_key": queue, "payload": "{}", "payload_encoding": "string"}
        assert not site.broker("POST", "exchanges/{vhost}/outbox.dlx/publish", body)["routed"]
        await _until_gone(site, listener)
    assert site.queues() == {}


async def test_an_ordered_listener_that_deletes_if_empty_is_deleted(site: Site) -> None:
    """RabbitMQ refuses to show the messages of a queue with a single active consumer."""
    listener = site.listener(deletionPolicy="DeleteIfEmpty", ordered=True)
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
        site.delete(listener)
        await _until_gone(site, listener)
    assert site.queues() == {}


async def test_delete_if_empty_stops_its_pods_before_the_queue_goes(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", worker={"image": "shop:1"})
    queue, pods = f"{site.namespace}.mail", Pods(site, listener)
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await pods.until_made()
        pods.make_running_pod("worker-1")
        site.delete(listener)
        await _until_waiting(site, listener, "its pods have ended")
        assert queue in site.queues()
        await site.until(lambda: site.find("Deployment", "mail-worker") is None, "the end of its Deployment")
        pods.end_pod("worker-1")
        await _until_gone(site, listener)
    assert queue not in site.queues()


async def test_a_queue_that_others_have_bound_too_is_not_deleted_if_empty(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
        site.broker("POST", f"bindings/{{vhost}}/e/outbox/q/{queue}", {"routing_key": "theirs"})
        site.delete(listener)
        await _until_waiting(site, listener, f'queue "{queue}" is still bound', '"theirs"')
        assert site.bindings(queue) == {("outbox", "theirs")}
        site.broker("DELETE", f"bindings/{{vhost}}/e/outbox/q/{queue}/theirs")
        await _until_gone(site, listener)
    assert queue not in site.queues()


async def test_delete_removes_queues_with_their_messages(site: Site) -> None:
    listener, other = site.listener(deletionPolicy="Delete"), site.listener("other")
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener, other)
    async with site.operating():
        await _ready(site, listener, other)
        for name in (queue, f"{queue}.dlq", f"{site.namespace}.other"):
            _publish(site, "amq.default", name)
            await _counted(site, name)
        site.delete(listener)
        await _until_gone(site, listener)
    assert not {queue, f"{queue}.dlq"} & set(site.queues())
    assert site.queues()[f"{site.namespace}.other"]["messages"] == 1
    assert site.bindings(f"{site.namespace}.other") == {("outbox", "user.created")}


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_retry_on_its_way_is_waited_for(site: Site, policy: str) -> None:
    """A message that returns to a queue that is gone would block the tier for every listener."""
    listener = site.listener(deletionPolicy=policy, retryDelays=["8s"])
    other = site.listener("other", retryDelays=["1h"])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener, other)
    async with site.operating(count_seconds=6):
        await _ready(site, listener, other)
        _publish(site, "outbox.delay_3600s", f"{site.namespace}.other")
        await _counted(site, "outbox.delay_3600s")
        # The broker has not even counted it when the listener is deleted.
        _publish(site, "outbox.delay_8s", queue)
        site.delete(listener)
        await _until_waiting(site, listener, 'delay tier "outbox.delay_8s"')
        assert queue in site.queues()
        if policy == "DeleteIfEmpty":
            await _until_waiting(site, listener, f'queue "{queue}" has 1 message')
            _purge(site, queue)
        await _until_gone(site, listener)
        assert not {queue, f"{queue}.dlq"} & set(site.queues())
        await _counted(site, "outbox.delay_8s", 0)
    # The other's retry was not waited for, and nobody has touched it.
    assert site.queues()["outbox.delay_3600s"]["messages"] == 1


@pytest.mark.parametrize("policy", _POLICIES)
async def test_a_queue_with_other_arguments_is_never_deleted(site: Site, policy: str) -> None:
    queue = f"{site.namespace}.mail"
    site.broker("PUT", f"queues/{{vhost}}/{queue}", {"durable": True, "arguments": {}})
    listener = site.listener(deletionPolicy=policy)
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener, "TopologyReady", "False", "ArgumentsDiffer")
        site.delete(listener)
        await _until_gone(site, listener)
    assert site.queues()[queue]["type"] == "classic"


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_queue_that_somebody_put_in_place_of_ours_is_not_deleted(site: Site, policy: str) -> None:
    queue = f"{site.namespace}.mail"
    listener = site.listener(deletionPolicy=policy)
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
    site.broker("DELETE", f"queues/{{vhost}}/{queue}")
    site.broker("PUT", f"queues/{{vhost}}/{queue}", {"durable": True, "arguments": {}})
    async with site.operating():
        site.delete(listener)
        await _until_gone(site, listener)
    [told] = _told(site, listener, "BrokerObjectsLeft")
    assert f'queue "{queue}"' in told
    assert site.queues()[queue]["type"] == "classic"


@pytest.mark.parametrize("policy", _POLICIES)
async def test_the_queue_of_an_older_listener_is_never_deleted_by_another(site: Site, policy: str) -> None:
    older = site.listener("a-older", queue="mails", deletionPolicy=policy)
    younger = site.listener("b-younger", queue="mails", deletionPolicy=policy)
    site.make_secrets()
    _create(site, site.relay(), older, younger)
    async with site.operating():
        await _ready(site, older)
        await site.until_condition(younger, "TopologyReady", "False", "QueueOwnedBy")
        site.delete(younger)
        await _until_gone(site, younger)
        assert {"mails", "mails.dlq"} <= set(site.queues())
        assert site.bindings("mails") == {("outbox", "user.created")}


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_deletion_gives_up_on_a_broker_that_stays_away(site: Site, policy: str) -> None:
    async with _way_to_the_broker(site) as (way, relay):
        relay["spec"]["deletionPolicy"] = policy
        listener = site.listener(deletionPolicy=policy)
        _create(site, relay, listener)
        async with site.operating(give_up_seconds=2):
            await _ready(site, relay, listener)
            await way.cut()
            for each in (listener, relay):
                site.delete(each)
            await _until_waiting(site, listener, "cannot be removed")
            await _until_gone(site, listener, relay)
    [told] = _told(site, listener, "BrokerObjectsLeft")
    assert f'queue "{site.namespace}.mail" was left on the broker after 2s: ' in told
    [told] = _told(site, relay, "BrokerObjectsLeft")
    assert 'exchange "outbox" was left on the broker' in told
    assert {each["type"] for each in site.events(relay) if each["reason"] == "BrokerObjectsLeft"} == {
        "Warning"
    }
    assert f"{site.namespace}.mail" in site.queues()


@pytest.mark.parametrize("kind", ["OutboxListener", "OutboxRelay"])
async def test_an_annotation_lets_a_resource_go_at_once(site: Site, kind: str) -> None:
    async with _way_to_the_broker(site) as (way, relay):
        relay["spec"]["deletionPolicy"] = "Delete"
        listener = site.listener(deletionPolicy="Delete")
        _create(site, relay, listener)
        wanted = listener if kind == "OutboxListener" else relay
        async with site.operating():
            await _ready(site, relay, listener)
            await way.cut()
            site.delete(wanted)
            await _until_waiting(site, wanted, "cannot be removed")
            site.annotate(wanted, skip_broker_cleanup="")
            await _until_gone(site, wanted)
    [told] = _told(site, wanted, "BrokerObjectsLeft")
    assert "skip-broker-cleanup" in told


async def test_the_annotation_leaves_a_queue_with_messages(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty")
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)
        _publish(site, "outbox", "user.created")
        await _counted(site, queue)
        site.delete(listener)
        await _until_waiting(site, listener, queue)
        site.annotate(listener, skip_broker_cleanup="true")
        await _until_gone(site, listener)
    assert site.queues()[queue]["messages"] == 1


async def test_a_relay_that_deletes_if_empty_waits_for_the_queues_bound_to_it(site: Site) -> None:
    relay, listener = site.relay(deletionPolicy="DeleteIfEmpty"), site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, relay, listener)
        site.delete(relay)
        await _until_waiting(site, relay, f'"{site.namespace}.mail"', "delete their listeners")
        await site.until_condition(listener, "RelayReady", "False", "RelayDeleted")
        assert "outbox" in site.exchanges()
        site.delete(listener)
        await _until_gone(site, listener, relay)
    assert site.exchanges() == set()
    assert site.queues() == {}


async def test_a_relay_that_deletes_leaves_the_queues_of_listeners_that_stay(site: Site) -> None:
    relay, listener = site.relay(deletionPolicy="Delete"), site.listener()
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, relay, listener)
        _publish(site, "outbox", "user.created")
        site.delete(relay)
        await _until_gone(site, relay)
        await site.until_condition(listener, "RelayReady", "False", "RelayMissing")
        assert not {"outbox", "outbox.dlx"} & site.exchanges()
        await _counted(site, queue)
        # Retries may be in them.
        assert "outbox.delay_1s" in site.queues()


async def test_the_tiers_go_with_the_last_relay_of_an_exchange(site: Site) -> None:
    relay, listener = site.relay(deletionPolicy="Delete"), site.listener(retryDelays=["1s", "1h"])
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, relay, listener)
        _publish(site, "outbox.delay_3600s", f"{site.namespace}.mail")
        await _counted(site, "outbox.delay_3600s")
        site.delete(listener)
        await _until_gone(site, listener)
        site.delete(relay)
        await _until_gone(site, relay)
    assert site.exchanges() == {"outbox.delay_3600s"}, "but for one with a message in it"
    assert set(site.queues()) - {f"{site.namespace}.mail", f"{site.namespace}.mail.dlq"} == {
        "outbox.delay_3600s"
    }


@pytest.mark.parametrize("policy", _REMOVING)
async def test_an_exchange_that_another_relay_has_too_stays(site: Site, policy: str) -> None:
    relay, other = site.relay(deletionPolicy=policy), site.relay("second")
    site.make_secrets()
    _create(site, relay, other)
    async with site.operating():
        await _ready(site, relay, other)
        site.delete(relay)
        await _until_gone(site, relay)
        assert {"outbox", "outbox.dlx"} <= site.exchanges()
        await _ready(site, other)
    [told] = _told(site, relay, "BrokerObjectsLeft")
    assert f"OutboxRelay {site.namespace}/second has it too" in told


async def test_an_exchange_that_another_relay_has_too_stays_also_when_an_operator_begins(site: Site) -> None:
    """It does not know yet which broker the others are for."""
    relay, others = site.relay("a", deletionPolicy="Delete"), [site.relay(f"b{n}") for n in range(5)]
    site.make_secrets()
    _create(site, relay, *others)
    async with site.operating():
        await _ready(site, relay, *others)
    # Whoever removes the exchange and makes it again has lost this.
    site.broker("PUT", "queues/{vhost}/theirs", {"durable": True})
    site.broker("POST", "bindings/{vhost}/e/outbox/q/theirs", {"routing_key": "#"})
    site.delete(relay)
    async with site.operating():
        await _until_gone(site, relay)
    assert site.bindings("theirs") == {("outbox", "#")}


async def test_an_exchange_goes_with_the_last_of_the_relays_that_have_it(site: Site) -> None:
    relays = [site.relay(name, deletionPolicy="Delete") for name in ("one", "three", "two")]
    site.make_secrets()
    _create(site, *relays)
    async with site.operating():
        await _ready(site, *relays)
        site.api.kubectl("delete", "obr", "--all", "--wait=false", "-n", site.namespace)
        await _until_gone(site, *relays)
    assert site.exchanges() == set()
    assert [_told(site, each, "BrokerObjectsLeft") for each in relays] == [[], [], []]


async def test_an_exchange_that_another_relay_may_have_too_stays(site: Site) -> None:
    relay, other = site.relay(deletionPolicy="Delete"), site.relay("other")
    other["spec"]["broker"]["secretRef"] = {"name": "missing"}
    site.make_secrets()
    _create(site, relay, other)
    async with site.operating(give_up_seconds=2):
        await _ready(site, relay)
        site.delete(relay)
        await _until_waiting(site, relay, f"OutboxRelay {site.namespace}/other may have it too")
        await _until_gone(site, relay)
    assert "outbox" in site.exchanges()
    [told] = _told(site, relay, "BrokerObjectsLeft")
    assert "correct its credentials" in told


@pytest.mark.parametrize("policy", _POLICIES)
async def test_an_exchange_of_another_kind_is_never_deleted(site: Site, policy: str) -> None:
    site.broker("PUT", "exchanges/{vhost}/outbox", {"type": "direct", "durable": True})
    relay = site.relay(deletionPolicy=policy)
    site.make_secrets()
    _create(site, relay)
    async with site.operating():
        await site.until_condition(relay, "TopologyReady", "False", "ArgumentsDiffer")
        site.delete(relay)
        await _until_gone(site, relay)
    assert "outbox" in site.exchanges()


async def test_an_exchange_that_somebody_put_in_place_of_ours_is_not_deleted(site: Site) -> None:
    relay = site.relay(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay)
    async with site.operating():
        await _ready(site, relay)
    site.broker("DELETE", "exchanges/{vhost}/outbox")
    site.broker("PUT", "exchanges/{vhost}/outbox", {"type": "direct", "durable": True})
    async with site.operating():
        site.delete(relay)
        await _until_gone(site, relay)
    assert "outbox" in site.exchanges()
    [told] = _told(site, relay, "BrokerObjectsLeft")
    assert 'exchange "outbox"' in told


@pytest.mark.parametrize("relay_policy", _POLICIES)
@pytest.mark.parametrize("policy", _REMOVING)
async def test_all_that_is_deleted_at_once_goes(site: Site, policy: str, relay_policy: str) -> None:
    relay = site.relay(deletionPolicy=relay_policy)
    listeners = [
        site.listener(name, deletionPolicy=policy, retryDelays=["1s"]) for name in ("one", "three", "two")
    ]
    site.make_secrets()
    _create(site, relay, *listeners)
    async with site.operating():
        await _ready(site, relay, *listeners)
        site.api.kubectl("delete", "obr,obl", "--all", "--wait=false", "-n", site.namespace)
        await _until_gone(site, relay, *listeners)
        if relay_policy == "Retain":
            assert {"outbox", "outbox.dlx"} <= site.exchanges()
            assert set(site.queues()) == {"outbox.delay_1s"}
        else:
            assert (site.exchanges(), site.queues()) == (set(), {})
    assert [_told(site, each, "BrokerObjectsLeft") for each in listeners] == [[], [], []]


async def test_a_listener_without_its_relay_leaves_its_queue_where_nobody_knows_the_broker_any_more(
    site: Site,
) -> None:
    relay, listener = site.relay(), site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, listener)
    site.delete(relay)
    async with site.operating():
        site.delete(listener)
        await _until_gone(site, listener)
    [told] = _told(site, listener, "BrokerObjectsLeft")
    assert told == f'queue "{site.namespace}.mail" was left on the broker, since its OutboxRelay is gone'
    assert f"{site.namespace}.mail" in site.queues()


async def test_a_deletion_asked_for_while_no_operator_runs_is_done_when_one_does(site: Site) -> None:
    relay, listener = site.relay(), site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, listener)
    site.delete(listener)
    assert site.get(listener)["metadata"]["finalizers"] == [FINALIZER]
    async with site.operating():
        await _until_gone(site, listener)
    assert f"{site.namespace}.mail" not in site.queues()


async def test_a_deleted_namespace_is_not_held_up_for_long(site: Site) -> None:
    """Its Secrets go with it, perhaps first, and no Event can be written there any more."""
    relay, listener = site.relay(deletionPolicy="Delete"), site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating(give_up_seconds=1):
        await _ready(site, relay, listener)
        site.api.request("DELETE", f"/api/v1/namespaces/{site.namespace}")
        with pytest.raises(RefusedError, match="being terminated"):
            site.make_secret("late")
        # As the controller of namespaces does, of which there is none here.
        for secret in ("shop-db", "shop-rabbitmq"):
            site.delete({"kind": "Secret", "metadata": {"name": secret}})
        for each in (relay, listener):
            site.delete(each)
        await _until_gone(site, relay, listener)


@pytest.mark.parametrize("relay_policy", ["Retain", "Delete"])
async def test_a_deleted_namespace_is_not_held_up_by_an_operator_that_comes_later(
    site: Site, relay_policy: str
) -> None:
    """It never knew the broker, as the Secrets are gone, and can make nothing in the namespace any more."""
    relay = site.relay(deletionPolicy=relay_policy, replicas=1)
    listener = site.listener(deletionPolicy="DeleteIfEmpty", worker={"image": "shop:1"})
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        for each in (relay, listener):
            await site.until_condition(each, "TopologyReady")
    site.api.request("DELETE", f"/api/v1/namespaces/{site.namespace}")
    for secret in ("shop-db", "shop-rabbitmq"):
        site.delete({"kind": "Secret", "metadata": {"name": secret}})
    async with site.operating(give_up_seconds=1):
        for each in (relay, listener):
            site.delete(each)
        await _until_gone(site, relay, listener)
    assert f"{site.namespace}.mail" in site.queues()


async def test_a_resource_that_cannot_be_read_any_more_can_be_deleted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _ready(site, listener)

    class _Newer(OutboxListener):
        """Of a version with another rule."""

        priority: int

    monkeypatch.setattr(cluster_store, "OutboxListener", _Newer)
    async with site.operating():
        await site.until_condition(listener, "TopologyReady", "False", "Invalid")
        site.delete(listener)
        await _until_gone(site, listener)
    [told] = _told(site, listener, "BrokerObjectsLeft")
    assert "priority" in told
    assert f"{site.namespace}.mail" in site.queues()


_NO_URL = "http://[:::]:15672"
"""What the rules of the resources let pass, and no library takes for a URL."""


async def test_a_management_url_that_cannot_be_parsed_is_reported(site: Site) -> None:
    relay, other = site.relay(), site.relay("other", exchange="other")
    site.make_secrets()
    _create(site, relay, other)
    async with site.operating():
        await _ready(site, relay)
        site.edit(relay, broker={"managementUrl": _NO_URL})
        said = await site.until_condition(relay, "CredentialsValid", "False", "InvalidUrl")
        assert "spec.broker.managementUrl" in said["message"]
        await _ready(site, other)


@pytest.mark.parametrize("way", ["giving up", "annotation", "Retain"])
async def test_resources_with_a_url_that_cannot_be_parsed_can_be_deleted(site: Site, way: str) -> None:
    relay, listener = site.relay(deletionPolicy="Delete"), site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, relay, listener)
    site.edit(relay, broker={"managementUrl": _NO_URL})
    async with site.operating(give_up_seconds=1 if way == "giving up" else 300):
        for each in (listener, relay):
            if way == "annotation":
                site.annotate(each, skip_broker_cleanup="")
            elif way == "Retain":
                site.edit(each, deletionPolicy="Retain")
            site.delete(each)
        await _until_gone(site, listener, relay)
    assert f"{site.namespace}.mail" in site.queues()


async def test_a_database_url_that_cannot_be_parsed_does_not_hold_up_a_deletion(site: Site) -> None:
    relay = site.relay(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay)
    async with site.operating():
        await _ready(site, relay)
        site.change_secret("shop-db", uri="postgresql://app:x@db℀/shop")
        said = await site.until_condition(relay, "CredentialsValid", "False", "InvalidUri")
        assert "plain letters" in said["message"]
        site.delete(relay)
        await _until_gone(site, relay)
    assert "outbox" not in site.exchanges()


async def test_a_secret_that_the_operator_may_not_read_does_not_hold_up_a_deletion(site: Site) -> None:
    relay, listener = site.relay(deletionPolicy="Delete"), site.listener(deletionPolicy="Delete")
    site.make_secrets()
    _create(site, relay, listener)
    async with site.operating():
        await _ready(site, relay, listener)

    async def refused(*_: str) -> None:
        raise ForbiddenError("secrets is forbidden")

    async with site.operating(give_up_seconds=1) as operator:
        operator.world.secrets.read = refused  # type: ignore[method-assign, assignment]
        for each in (listener, relay):
            site.delete(each)
        await _until_gone(site, listener, relay)
    [told] = _told(site, relay, "BrokerObjectsLeft")
    assert "secrets is forbidden" in told


async def test_pods_and_their_user_go_with_a_listener_that_deletes(site: Site) -> None:
    listener = site.listener(deletionPolicy="Delete", worker={"image": "shop:1"})
    site.make_secrets()
    _create(site, site.relay(), listener)
    async with site.operating():
        await _found(site, "Deployment", "mail-worker")
        assert [name for name in site.broker_users() if ".mail." in name]
        site.delete(listener)
        await _until_gone(site, listener)
    assert site.find("Deployment", "mail-worker") is None
    assert [name for name in site.broker_users() if ".mail." in name] == []


@asynccontextmanager
async def _way_to_the_broker(site: Site) -> AsyncIterator[tuple[Bridge, Manifest]]:
    """A bridge to the broker's management API, and a relay that goes over it."""
    there = urlsplit(site.management_url)
    way = Bridge(there.hostname or "", there.port or 0)
    await way.open()
    try:
        relay = site.relay()
        relay["spec"]["broker"]["managementUrl"] = way.url.replace("https:", "http:")
        site.make_secrets()
        yield way, relay
    finally:
        await way.cut()
