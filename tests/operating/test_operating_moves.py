"""A relay whose Secret names another virtual host: what stays in the old one is reported and locked up."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from outbox.topology import Subscription, topology
from outbox_operator.planning.moves import FORGET
from outbox_operator.planning.removal import FINALIZER
from tests.operator.broker_bridge import broker_bridge
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import several_looks
from tests.operator.pods import Pods, users_of
from tests.operator.site import Site

DRAINED = "PreviousVhostDrained"
WORKER: dict[str, Any] = {"handler": "shop.mail:send", "worker": {"image": "shop:1"}}


@pytest.fixture
def new(site: Site) -> Iterator[Site]:
    """The same site with another virtual host of its broker."""
    parts = urlsplit(site.rabbitmq_url)
    there = replace(site, rabbitmq_url=urlunsplit(parts._replace(path=f"/new-{uuid4().hex}")))
    there.broker("PUT", "vhosts/{vhost}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    there.broker("PUT", f"permissions/{{vhost}}/{parts.username}", everything)
    yield there
    there.broker("DELETE", "vhosts/{vhost}")


def publish(site: Site, queue: str) -> None:
    body: Any = {"properties": {}, "routing_key": queue, "payload": "{}", "payload_encoding": "string"}
    assert site.broker("POST", "exchanges/{vhost}/amq.default/publish", body)["routed"]


def place(site: Site, url: str | None = None) -> Manifest:
    """A virtual host as the status names it."""
    return {"managementUrl": url or site.management_url, "name": site.vhost}


def may_enter(site: Site, user: str) -> bool:
    return any(each["user"] == user for each in site.broker("GET", "vhosts/{vhost}/permissions"))


def told(site: Site, manifest: Manifest, reason: str) -> list[str]:
    return [each["message"] for each in site.events(manifest) if each["reason"] == reason]


async def start(site: Site, *manifests: Manifest) -> None:
    site.make_secrets()
    for each in manifests:
        site.api.create(each)
    for each in manifests:
        await site.until_condition(each, "TopologyReady")


async def until_moved(site: Site, new: Site, *manifests: Manifest) -> None:
    """Change the Secret, and wait until the resources are in the new virtual host."""
    site.change_secret("shop-rabbitmq", uri=new.rabbitmq_url)
    for each in manifests:
        name = each["metadata"]["name"]
        await site.until(
            lambda: site.status(each).get("virtualHost") == place(new),  # noqa: B023 - called here
            f"{name} in the new virtual host",
        )


def remove_queues(site: Site, queue: str) -> None:
    for name in (queue, f"{queue}.dlq"):
        site.broker("DELETE", f"queues/{{vhost}}/{name}")


async def test_messages_in_the_old_vhost_are_reported_until_their_queue_is_gone(
    site: Site, new: Site
) -> None:
    relay, listener, queue = site.relay(), site.listener(), f"{site.namespace}.mail"
    async with site.operating():
        await start(site, relay, listener)
        assert site.status(listener)["virtualHost"] == place(site)
        publish(site, queue)
        await until_moved(site, new, relay, listener)
        said = await site.until_condition(listener, DRAINED, "False", "MessagesLeftBehind")
        for words in (f'queue "{queue}" with 1 message', f'vhost "{site.vhost}"', "drain", "shovel", FORGET):
            assert words in said["message"]
        assert site.condition(listener)["reason"] == "MessagesLeftBehind"
        assert site.condition(listener, "TopologyReady")["status"] == "True"
        assert site.status(listener)["previousVirtualHosts"] == [place(site)]
        for each in (relay, listener):
            await site.until(lambda: told(site, each, "Moved"), "an Event")  # noqa: B023 - called here
            assert f'from vhost "{site.vhost}"' in told(site, each, "Moved")[0]
        assert new.bindings(queue) == {("outbox", "user.created")}
        assert site.messages(queue) == 1
        site.broker("DELETE", f"queues/{{vhost}}/{queue}/contents")
        await site.until_condition(listener, DRAINED, "True", "QueuesLeftBehind")
        await site.until_condition(listener)
        remove_queues(site, queue)
        await site.until(lambda: site.condition(listener, DRAINED) == {}, "the end of the condition")
        assert "previousVirtualHosts" not in site.status(listener)
    assert len(told(site, listener, "Moved")) == 1


@pytest.mark.parametrize("is_restarted", [False, True], ids=["in one life", "after a restart"])
async def test_pods_may_not_enter_the_old_vhost_after_they_have_rolled_over(
    site: Site, new: Site, is_restarted: bool
) -> None:
    relay, listener = site.relay(replicas=1), site.listener(**WORKER)
    async with site.operating() as operator:
        await start(site, relay, listener)
        pods = [Pods(site, relay), Pods(site, listener)]
        for those in pods:
            await those.until_made()
            those.roll_out()
        [relays], [listeners] = users_of(site, relay), users_of(site, listener)
        secrets = [those.secret_name for those in pods]
        if not is_restarted:
            await until_moved(site, new, relay, listener)
            for those, secret in zip(pods, secrets, strict=True):
                await those.until_another_secret(secret)
                those.make_running_pod(f"{those.component}-of-before")
                those.stop_pod(f"{those.component}-of-before")
                those.roll_out()
            await several_looks(site, operator)
            assert may_enter(site, relays)
            assert may_enter(site, listeners)
            for those in pods:
                those.end_pod(f"{those.component}-of-before")
            await site.until(lambda: not may_enter(site, relays), "the end of the relay's permissions")
            await site.until(lambda: not may_enter(site, listeners), "the end of the worker's permissions")
    if is_restarted:
        site.change_secret("shop-rabbitmq", uri=new.rabbitmq_url)
        async with site.operating():
            for those, secret in zip(pods, secrets, strict=True):
                await those.until_another_secret(secret)
                those.roll_out()
            await site.until(lambda: not may_enter(site, relays), "the end of the relay's permissions")
            await site.until(lambda: not may_enter(site, listeners), "the end of the worker's permissions")
    assert may_enter(new, relays)
    assert may_enter(new, listeners)
    assert users_of(site, relay) == {relays}


@pytest.mark.parametrize("change", ["replaced", "added"])
async def test_another_address_of_the_same_broker_is_no_move(site: Site, change: str) -> None:
    relay, listener = site.relay(replicas=1), site.listener(**WORKER)
    async with broker_bridge(site) as bridge, site.operating() as operator:
        await start(site, relay, listener)
        pods = [Pods(site, relay), Pods(site, listener)]
        for those in pods:
            await those.until_made()
            those.roll_out()
        [relays], [listeners] = users_of(site, relay), users_of(site, listener)
        there = bridge.url.removeprefix("http://")
        url = bridge.url if change == "replaced" else f"{site.management_url},{there}"
        site.edit(relay, broker={"managementUrl": url})
        for each in (relay, listener):
            await site.until(
                lambda: site.status(each)["virtualHost"] == place(site, url),  # noqa: B023 - called here
                "the new address in the status",
            )
        await several_looks(site, operator)
        assert may_enter(site, relays)
        assert may_enter(site, listeners)
        for each in (relay, listener):
            assert "previousVirtualHosts" not in site.status(each)
            assert told(site, each, "Moved") == []
            assert site.condition(each, DRAINED) == {}


async def test_an_old_vhost_that_nobody_can_enter_is_reported_until_it_is_forgotten(
    site: Site, new: Site
) -> None:
    """Its address is not the current one, and a new operator does not remember how it was entered."""
    listener = site.listener()
    async with broker_bridge(site) as bridge:
        relay = site.relay()
        relay["spec"]["broker"]["managementUrl"] = bridge.url
        async with site.operating():
            await start(site, relay, listener)
        site.change_secret("shop-rabbitmq", uri=new.rabbitmq_url)
        site.edit(relay, broker={"managementUrl": site.management_url})
        async with site.operating():
            said = await site.until_condition(listener, DRAINED, "False", "PreviousVhostUnknown")
            assert "credentials are not known any more" in said["message"]
            assert f'vhost "{site.vhost}" of {bridge.url}' in said["message"]
            site.annotate(listener, forget_vhost=site.vhost)
            await site.until_condition(listener)
            assert "previousVirtualHosts" not in site.status(listener)


async def test_credentials_that_are_remembered_are_used_for_the_old_broker(site: Site, new: Site) -> None:
    listener, queue = site.listener(), f"{site.namespace}.mail"
    async with broker_bridge(site) as bridge:
        relay = site.relay()
        relay["spec"]["broker"]["managementUrl"] = bridge.url
        async with site.operating():
            await start(site, relay, listener)
            publish(site, queue)
            site.change_secret("shop-rabbitmq", uri=new.rabbitmq_url)
            site.edit(relay, broker={"managementUrl": site.management_url})
            await site.until_condition(listener, DRAINED, "False", "MessagesLeftBehind")
            remove_queues(site, queue)
            await site.until_condition(listener)


async def test_a_move_back_leaves_nothing_to_say(site: Site, new: Site) -> None:
    relay, listener, queue = site.relay(), site.listener(), f"{site.namespace}.mail"
    async with site.operating():
        await start(site, relay, listener)
        publish(site, queue)
        await until_moved(site, new, relay, listener)
        await site.until_condition(listener, DRAINED, "False", "MessagesLeftBehind")
        await until_moved(site, site, relay, listener)
        await site.until_condition(listener, DRAINED, "True", "QueuesLeftBehind")
        assert site.status(listener)["previousVirtualHosts"] == [place(new)]
        await site.until_condition(listener)


@pytest.mark.parametrize("policy", ["Delete", "DeleteIfEmpty"])
async def test_a_deletion_says_what_is_left_in_the_old_vhost(site: Site, new: Site, policy: str) -> None:
    relay, listener = site.relay(deletionPolicy=policy), site.listener(deletionPolicy=policy, retryDelays=[])
    queue = f"{site.namespace}.mail"
    async with site.operating():
        await start(site, relay, listener)
        publish(site, queue)
        await until_moved(site, new, relay, listener)
        for each in (listener, relay):
            site.delete(each)
            await site.until(lambda: site.is_gone(each), "its end")  # noqa: B023 - called here
    assert new.queues() == {}
    assert site.messages(queue) == 1
    for each in (listener, relay):
        [said] = told(site, each, "BrokerObjectsLeft")
        assert f'vhost "{site.vhost}"' in said


async def test_a_queue_in_a_vhost_that_a_listener_never_reached_is_not_deleted(site: Site, new: Site) -> None:
    """Its status says that it has a queue of that name, which is the one in the old virtual host."""
    relay, listener = (
        site.relay(deletionPolicy="Delete"),
        site.listener(deletionPolicy="Delete", retryDelays=[]),
    )
    queue = f"{site.namespace}.mail"
    async with site.operating():
        await start(site, relay, listener)
    for wanted in topology("outbox", [Subscription(queue, ("user.created",), ())]).queues:
        new.broker("PUT", f"queues/{{vhost}}/{wanted.name}", {"durable": True, "arguments": wanted.arguments})
    new.broker("PUT", "exchanges/{vhost}/outbox", {"type": "topic", "durable": True})
    publish(new, queue)
    site.change_secret("shop-rabbitmq", uri=new.rabbitmq_url)
    for each in (listener, relay):
        site.delete(each)
        assert site.get(each)["metadata"]["finalizers"] == [FINALIZER]
    async with site.operating():
        for each in (listener, relay):
            await site.until(lambda: site.is_gone(each), "its end")  # noqa: B023 - called here
    assert new.messages(queue) == 1
    assert "outbox" in new.exchanges()
    for each in (listener, relay):
        [said] = told(site, each, "BrokerObjectsLeft")
        assert f'was left in vhost "{site.vhost}"' in said
