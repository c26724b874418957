"""The broker users of pods: what they may do, how they are rotated, and when they go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from aiormq.exceptions import AMQPError, ChannelAccessRefused

from outbox_core.broker import Broker
from outbox_core.broker_errors import AuthenticationError
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import several_passes
from tests.operator.pods import Pods, another_look, users_of
from tests.operator.site import Site

WORKER: Manifest = {"handler": "shop.listeners:on_user", "worker": {"image": "shop:1", "replicas": 2}}
RESOURCES = ["relay", "listener"]


def make(site: Site, resource: str, **spec: Any) -> tuple[Manifest, Pods]:
    """A relay or a listener with two pods, and what it needs."""
    site.make_secrets()
    if resource == "relay":
        manifest = site.relay(**{"replicas": 2, **spec})
    else:
        site.api.create(site.relay())
        manifest = site.listener(**{**WORKER, **spec})
    site.api.create(manifest)
    return manifest, Pods(site, manifest)


def user_in(uri: str) -> str:
    return unquote(urlsplit(uri).username or "")


@asynccontextmanager
async def channel(uri: str) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(uri, timeout=10) as connection:
        yield await connection.channel()


async def can_enter(uri: str) -> bool:
    """As a pod enters."""
    try:
        async with Broker(uri, name="tests"):
            return True
    except AuthenticationError:
        return False


async def publish(to: AbstractChannel, exchange: str, routing_key: str = "user.created") -> None:
    found = await to.get_exchange(exchange, ensure=False)
    await found.publish(aio_pika.Message(b"{}"), routing_key, timeout=10)


# What they may do.


async def test_a_worker_may_read_its_queue_and_write_its_tiers_and_nothing_else(site: Site) -> None:
    listener, pods = make(site, "listener")
    other = site.listener("other")
    site.api.create(other)
    async with site.operating():
        await pods.until_made()
        await site.until_condition(other)
    uri, queue = pods.broker_uri, f"{site.namespace}.mail"
    assert users_of(site, listener) == {user_in(uri)}
    async with channel(site.rabbitmq_url) as administrator:
        await publish(administrator, "outbox")
    async with channel(uri) as worker:
        mine = await worker.get_queue(queue)
        message = await mine.get(timeout=10)
        assert message is not None
        for exchange in ("outbox.delay_1s", "outbox.delay_300s", "outbox.dlx"):
            await publish(worker, exchange, queue)
        await message.ack()
    async with channel(uri) as worker:
        with pytest.raises(ChannelAccessRefused):
            await worker.declare_queue("new", durable=True, arguments={"x-queue-type": "quorum"})
    for theirs in (f"{site.namespace}.other", f"{queue}.dlq"):
        async with channel(uri) as worker:
            with pytest.raises(ChannelAccessRefused):
                await (await worker.get_queue(theirs)).get(timeout=10)
    async with channel(uri) as worker:
        with pytest.raises(AMQPError, match="ACCESS_REFUSED"):
            await publish(worker, "outbox")


async def test_a_relay_may_publish_to_its_exchange_and_nothing_else(site: Site) -> None:
    relay, pods = make(site, "relay")
    site.api.create(site.listener())
    async with site.operating():
        await pods.until_made()
        await site.until_condition(site.listener())
    uri, queue = pods.broker_uri, f"{site.namespace}.mail"
    assert users_of(site, relay) == {user_in(uri)}
    async with channel(uri) as publisher:
        await publish(publisher, "outbox")
    for exchange in ("outbox.dlx", "outbox.delay_1s", "amq.topic"):
        async with channel(uri) as publisher:
            with pytest.raises(AMQPError, match="ACCESS_REFUSED"):
                await publish(publisher, exchange)
    async with channel(uri) as publisher:
        with pytest.raises(ChannelAccessRefused):
            await (await publisher.get_queue(queue)).get(timeout=10)
    async with channel(uri) as publisher:
        with pytest.raises(ChannelAccessRefused):
            await publisher.declare_exchange("new", durable=True)


async def test_new_retry_delays_widen_what_the_same_user_may_do(site: Site) -> None:
    listener, pods = make(site, "listener", retryDelays=["1s"])
    async with site.operating():
        await pods.until_made()
        uri = pods.broker_uri
        site.edit(listener, retryDelays=["1s", "7s"])
        await site.until(lambda: "outbox.delay_7s" in site.exchanges(), "the new tier")
        right = f"permissions/{{vhost}}/{user_in(uri)}"
        await site.until(lambda: "delay_7s" in site.broker("GET", right)["write"], "the right to write to it")
    async with channel(uri) as worker:
        await publish(worker, "outbox.delay_7s")
    assert pods.broker_uri == uri


# Rotation.


@pytest.mark.parametrize("resource", RESOURCES)
async def test_a_rotation_makes_a_new_user_and_the_old_one_works_until_its_last_pod_is_gone(
    site: Site, resource: str
) -> None:
    manifest, pods = make(site, resource)
    async with site.operating() as operator:
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(manifest)
        pods.make_running_pod("old")
        before, old, old_secret = pods.deployment, pods.broker_uri, pods.secret_name
        site.annotate(manifest, rotate="2026-01")
        new_secret = await pods.until_another_secret(than=old_secret)
        new = pods.broker_uri
        assert user_in(new) != user_in(old)
        pods.begin_rollout()
        await another_look(site, operator, manifest)
        assert await can_enter(old)
        assert await can_enter(new)
        assert pods.secrets().keys() == {old_secret, new_secret}

        pods.stop_pod("old")
        pods.roll_out()
        await another_look(site, operator, manifest)
        assert await can_enter(old), "its last pod is on its way out, and may have something to acknowledge"

        pods.end_pod("old")
        await site.until(lambda: users_of(site, manifest) == {user_in(new)}, "the end of the old user")
        await pods.until_only_secret(new_secret)
        assert not await can_enter(old)
        assert await can_enter(new)
        await another_look(site, operator, manifest)
        await site.until_condition(manifest)
        # One for the new template, and one for the note that nothing is left to retire: no more than that.
        assert pods.deployment["metadata"]["generation"] == before["metadata"]["generation"] + 2


@pytest.mark.parametrize("resource", RESOURCES)
async def test_a_rotation_in_the_middle_of_another_leaves_nothing_behind(site: Site, resource: str) -> None:
    manifest, pods = make(site, resource)
    async with site.operating() as operator:
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(manifest)
        before, first = pods.deployment, pods.broker_uri
        last = pods.secret_name
        for turn in ("one", "two", "three"):
            site.annotate(manifest, rotate=turn)
            last = await pods.until_another_secret(than=last)
            pods.begin_rollout()
        await another_look(site, operator, manifest)
        # Pods of any of them may still be there.
        assert len(pods.secrets()) == len(users_of(site, manifest)) == 4
        assert await can_enter(first)
        pods.roll_out()
        await pods.until_only_secret(last)
        await site.until(lambda: users_of(site, manifest) == {user_in(pods.broker_uri)}, "one user")
        assert await can_enter(pods.broker_uri)
        assert pods.deployment["metadata"]["generation"] == before["metadata"]["generation"] + 3 + 1


@pytest.mark.parametrize("resource", RESOURCES)
async def test_a_rotation_goes_on_after_a_restart_of_the_operator(site: Site, resource: str) -> None:
    manifest, pods = make(site, resource)
    async with site.operating():
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(manifest)
        first = pods.secret_name
        site.annotate(manifest, rotate="now")
        second = await pods.until_another_secret(than=first)
    uri, template = pods.broker_uri, pods.deployment["spec"]["template"]
    async with site.operating() as operator:
        await another_look(site, operator, manifest)
        assert pods.secrets().keys() == {first, second}
        pods.roll_out()
        await pods.until_only_secret(second)
        await site.until(lambda: users_of(site, manifest) == {user_in(uri)}, "one user")
        assert pods.deployment["spec"]["template"] == template


async def test_a_rotation_of_one_leaves_the_others_alone(site: Site) -> None:
    listener, workers = make(site, "listener")
    relay = site.relay()
    relays = Pods(site, relay)
    async with site.operating() as operator:
        await workers.until_made()
        await relays.until_made()
        before, users = relays.deployment, users_of(site, relay)
        site.annotate(listener, rotate="now")
        await workers.until_another_secret(than=workers.secret_name)
        await several_passes(site, operator)
    assert relays.deployment == before
    assert users_of(site, relay) == users


# The end.


@pytest.mark.parametrize("resource", RESOURCES)
async def test_the_user_of_a_deleted_resource_goes_when_its_pods_are_gone(site: Site, resource: str) -> None:
    manifest, pods = make(site, resource)
    async with site.operating(user_grace_seconds=0.5):
        await pods.until_made()
        uri = pods.broker_uri
        pods.make_running_pod("old")
        site.delete(manifest)
        await site.until(lambda: site.is_gone(manifest), "the end of the resource")
        # As the garbage collector does it.
        pods.stop_pod("old")
        site.delete({"kind": "Deployment", "metadata": {"name": pods.name}})
        assert await can_enter(uri)
        pods.end_pod("old")
        await site.until(lambda: users_of(site, manifest) == set(), "the end of the user")
        assert not await can_enter(uri)
    assert "outbox" in site.exchanges()


async def test_the_user_of_a_resource_that_was_made_anew_goes_too(site: Site) -> None:
    listener, pods = make(site, "listener")
    async with site.operating(user_grace_seconds=0.5):
        await pods.until_made()
        old = pods.broker_uri
        site.delete(listener)
        site.delete({"kind": "Deployment", "metadata": {"name": pods.name}})
        site.api.create(listener)

        def new_user() -> set[str]:
            return users_of(site, listener) - {user_in(old)}

        await site.until(new_user, "a user of the new resource")
        await site.until(lambda: users_of(site, listener) == new_user(), "the end of the old user")
        await pods.until_made()
        assert await can_enter(pods.broker_uri)


async def test_a_user_is_never_another_resources_that_begins_with_the_same_name(site: Site) -> None:
    listener, pods = make(site, "listener")
    longer = site.listener("mail.again", **WORKER)
    site.api.create(longer)
    others = Pods(site, longer)
    async with site.operating(user_grace_seconds=0):
        for each in (pods, others):
            await each.until_made()
        site.edit(listener, worker=None, handler=None)
        await site.until(lambda: users_of(site, listener) == users_of(site, longer), "the end of its user")
        assert await can_enter(others.broker_uri)
