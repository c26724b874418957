"""A queue that is something else, or somebody else's: it is said, it is left alone, and it gets right."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from outbox.topology import Subscription, topology
from outbox_operator.rbac import RESOURCE_RIGHTS
from tests.operator.accounts import broker_uri, broker_user
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.identity import identity
from tests.operator.counting import several_looks
from tests.operator.site import Site

CLASSIC: dict[str, Any] = {}
FEW_DELIVERIES = {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "outbox.dlx",
    "x-delivery-limit": 5,
}


def start(site: Site, *manifests: Manifest) -> None:
    """What a user applies, with the Secrets that it names."""
    site.make_secrets()
    for manifest in manifests:
        site.api.create(manifest)


def publish(site: Site, queue: str) -> None:
    message = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
    assert site.broker("POST", "exchanges/{vhost}/amq.default/publish", message)["routed"]


def keys_of(site: Site, queue: str) -> set[str]:
    return {key for _, key in site.bindings(queue)}


@pytest.mark.parametrize(
    ("suffix", "arguments", "words"),
    [
        ("", CLASSIC, ["is of type classic where quorum is wanted"]),
        ("", FEW_DELIVERIES, ["x-delivery-limit=5 where 20 is wanted", "no x-dead-letter-routing-key"]),
        (".dlq", CLASSIC, ["is of type classic where quorum is wanted"]),
    ],
    ids=["of another type", "with other arguments", "a dead-letter queue of another type"],
)
async def test_a_queue_that_is_something_else_is_named_and_left_alone_until_it_is_deleted(
    site: Site, suffix: str, arguments: dict[str, Any], words: list[str]
) -> None:
    listener = site.listener()
    queue = f"{site.namespace}.mail{suffix}"
    site.broker("PUT", f"queues/{{vhost}}/{queue}", {"durable": True, "arguments": arguments})
    publish(site, queue)
    start(site, site.relay(), listener)
    async with site.operating() as operator:
        said = await site.until_condition(listener, "TopologyReady", "False", "ArgumentsDiffer")
        assert f'queue "{queue}"' in said["message"]
        for each in words:
            assert each in said["message"]
        assert "delete it" in said["message"]
        assert site.condition(listener)["status"] == "False"
        await several_looks(site, operator)
        # Of a classic queue newer brokers tell its type.
        assert site.queues()[queue]["arguments"] in (arguments, {"x-queue-type": "classic", **arguments})
        assert site.bindings(queue) == set()
        assert site.messages(queue) == 1
        site.broker("DELETE", f"queues/{{vhost}}/{queue}")
        await site.until_condition(listener)
    assert site.queues()[queue]["arguments"]["x-queue-type"] == "quorum"
    assert keys_of(site, queue) == {f"{site.namespace}.mail" if suffix else "user.created"}


@pytest.mark.parametrize(("name", "kind"), [("outbox", "direct"), ("outbox.dlx", "topic")])
async def test_an_exchange_of_another_type_is_named_and_left_alone_until_it_is_deleted(
    site: Site, name: str, kind: str
) -> None:
    relay, listener = site.relay(), site.listener()
    site.broker("PUT", f"exchanges/{{vhost}}/{name}", {"type": kind, "durable": True})
    start(site, relay, listener)
    async with site.operating() as operator:
        for each in (relay, listener):
            said = await site.until_condition(each, "TopologyReady", "False", "ArgumentsDiffer")
            wanted = "topic" if kind == "direct" else "direct"
            assert f'exchange "{name}" is of type {kind} where {wanted} is wanted' in said["message"]
            assert "delete it" in said["message"]
        await several_looks(site, operator)
        bindings = site.broker("GET", f"exchanges/{{vhost}}/{name}/bindings/source")
        assert bindings == []
        site.broker("DELETE", f"exchanges/{{vhost}}/{name}")
        for each in (relay, listener):
            await site.until_condition(each)
    assert keys_of(site, f"{site.namespace}.mail") == {"user.created"}


async def test_limits_that_a_queue_cannot_get_are_said_and_it_works_on(site: Site) -> None:
    listener = site.listener()
    queue = f"{site.namespace}.mail"
    start(site, site.relay(), listener)
    async with site.operating() as operator:
        await site.until_condition(listener)
        site.edit(listener, limits={"maxLength": 10})
        said = await site.until_condition(listener, "TopologyReady", "False", "ArgumentsDiffer")
        assert f'queue "{queue}" has no x-max-length where 10 is wanted' in said["message"]
        await several_looks(site, operator)
        assert keys_of(site, queue) == {"user.created"}
        site.edit(listener, limits=None)
        await site.until_condition(listener)


async def test_a_queue_that_is_right_is_adopted_with_its_messages_and_bindings(site: Site) -> None:
    listener = site.listener(retryDelays=["1s"])
    name = f"{site.namespace}.mail"
    subscription = Subscription(name, ("user.created",), (timedelta(seconds=1),))
    for queue in topology("outbox", [subscription]).queues:
        body = {"durable": True, "arguments": queue.arguments}
        site.broker("PUT", f"queues/{{vhost}}/{queue.name}", body)
    site.broker("PUT", "exchanges/{vhost}/outbox", {"type": "topic", "durable": True})
    site.broker("POST", f"bindings/{{vhost}}/e/outbox/q/{name}", {"routing_key": "by.hand"})
    for _ in range(3):
        publish(site, name)
    start(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener)
        await site.until(lambda: site.status(listener).get("backlog") == 3, "its messages in the status")
    assert site.messages(name) == 3
    assert keys_of(site, name) == {"user.created", "by.hand"}


# Queues that several ask for.


async def owned_by(site: Site, listener: Manifest, queue: str, owner: str) -> None:
    said = await site.until_condition(listener, "TopologyReady", "False", "QueueOwnedBy")
    assert f'queue "{queue}" belongs to {owner}' in said["message"]


async def test_of_two_listeners_with_one_queue_the_older_has_it_and_the_other_takes_over(site: Site) -> None:
    older = site.listener("a", queue="shared", bindingKeys=["of.a"])
    younger = site.listener("b", queue="shared", bindingKeys=["of.b"])
    start(site, site.relay(), older, younger)
    async with site.operating() as operator:
        await site.until_condition(older)
        await owned_by(site, younger, "shared", f"OutboxListener {site.namespace}/a")
        await several_looks(site, operator)
        assert keys_of(site, "shared") == {"of.a"}
        assert site.condition(older)["status"] == "True"
        site.delete(older)
        await site.until_condition(younger)
        assert "of.b" in keys_of(site, "shared")


async def test_whoever_has_a_queue_keeps_it_though_another_comes_in_the_same_second(site: Site) -> None:
    """To the API server's clock, which has whole seconds, these two are of the same age."""
    site.make_secrets()
    site.api.create(site.relay())
    async with site.operating():
        await site.until_condition(site.relay())
        for number in range(20):
            await site.until(lambda: time.time() % 1 < 0.1, "the beginning of a second")
            first = site.listener(f"z{number}", queue=f"shared-{number}")
            made = site.api.create(first)["metadata"]["creationTimestamp"]
            await site.until_condition(first)
            second = site.listener(f"a{number}", queue=f"shared-{number}")
            if site.api.create(second)["metadata"]["creationTimestamp"] == made:
                break
        else:
            pytest.fail("no two listeners could be made within a second")
        await owned_by(site, second, f"shared-{number}", f"OutboxListener {site.namespace}/z{number}")
        assert site.condition(first)["status"] == "True"


async def test_a_listener_whose_broker_becomes_known_late_does_not_take_a_queue_away(site: Site) -> None:
    late = site.relay("late")
    late["spec"]["broker"]["secretRef"] = {"name": "late"}
    older = site.listener("a", queue="shared", relayRef={"name": "late"})
    younger = site.listener("b", queue="shared")
    start(site, site.relay(), late, older, younger)
    async with site.operating() as operator:
        await site.until_condition(younger)
        await site.until_condition(older, "RelayReady", "False", "SecretMissing")
        site.make_secret("late", uri=site.rabbitmq_url)
        await owned_by(site, older, "shared", f"OutboxListener {site.namespace}/b")
        await several_looks(site, operator)
        assert site.condition(younger)["status"] == "True"


async def test_two_that_have_a_queue_of_one_name_do_not_share_it_when_one_moves_to_the_others_vhost(
    site: Site, another_vhost: str
) -> None:
    moving = site.relay("moving")
    moving["spec"]["broker"]["secretRef"] = {"name": "moving"}
    older = site.listener("a", queue="shared", relayRef={"name": "moving"})
    younger = site.listener("b", queue="shared")
    site.make_secret("moving", uri=another_vhost)
    start(site, site.relay(), moving, older, younger)
    async with site.operating():
        for each in (older, younger):
            await site.until_condition(each)
        site.change_secret("moving", uri=site.rabbitmq_url)
        # Whoever has marked the queue keeps it: workers may consume from it.
        await owned_by(site, older, "shared", f"OutboxListener {site.namespace}/b")
        assert site.condition(younger)["status"] == "True"


@pytest.mark.parametrize("first", ["q", "q.dlq"])
async def test_a_queue_that_is_anothers_dead_letter_queue_is_not_shared(site: Site, first: str) -> None:
    one = site.listener("a", queue=first)
    other = site.listener("b", queue="q.dlq" if first == "q" else "q")
    start(site, site.relay(), one, other)
    async with site.operating():
        await site.until_condition(one)
        await owned_by(site, other, "q.dlq", f"OutboxListener {site.namespace}/a")
        site.delete(one)
        # What the older one left is another kind of queue than the younger needs.
        await site.until_condition(other, "TopologyReady", "False", "ArgumentsDiffer")
        for name in ("q", "q.dlq", "q.dlq.dlq"):
            if name in site.queues():
                site.broker("DELETE", f"queues/{{vhost}}/{name}")
        await site.until_condition(other)


@pytest.fixture
def neighbour(site: Site, tmp_path: Path) -> tuple[Site, Site]:
    """Two namespaces on one virtual host, and an operator with its rights in both."""
    namespace = f"test-{uuid4().hex[:12]}"
    site.api.make_namespace(namespace)
    rights = [right.manifest() for right in RESOURCE_RIGHTS]
    who = identity(site.api, site.namespace, tmp_path, {site.namespace: rights, namespace: rights})
    here = replace(site, identity=who)
    return here, replace(here, namespace=namespace)


@pytest.fixture
def another_administrator(site: Site) -> Iterator[str]:
    """The URL of the virtual host for another user than the site's."""
    with broker_user(site, "another", tags="administrator") as name:
        yield broker_uri(site, name, "another")


@pytest.mark.parametrize("credentials", ["the same", "others"])
async def test_a_queue_is_not_shared_between_namespaces_either(
    neighbour: tuple[Site, Site], another_administrator: str, credentials: str
) -> None:
    here, there = neighbour
    if credentials == "others":
        there = replace(there, rabbitmq_url=another_administrator)
    older, younger = here.listener("b", queue="shared"), there.listener("a", queue="shared")
    start(here, here.relay(), older)
    async with here.operating(namespaces=(here.namespace, there.namespace)) as operator:
        await here.until_condition(older)
        start(there, there.relay(), younger)
        await owned_by(there, younger, "shared", "an OutboxListener of another namespace")
        assert len(operator.world.vhosts._opened) == (2 if credentials == "others" else 1)
        here.delete(older)
        await there.until_condition(younger)


@pytest.mark.parametrize(
    "wrong",
    [{"internal": True}, {"auto_delete": True}, {"arguments": {"alternate-exchange": "elsewhere"}}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_an_exchange_that_would_lose_messages_is_reported(site: Site, wrong: dict[str, Any]) -> None:
    site.broker("PUT", "exchanges/{vhost}/outbox", {"type": "topic", "durable": True, **wrong})
    relay = site.relay()
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        said = await site.until_condition(relay, "TopologyReady", "False", "ArgumentsDiffer")
    assert 'exchange "outbox"' in said["message"]
