"""The rights that the operator gives are enough for a relay and a worker, and for nothing else."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aio_pika
import pytest
from aiormq.exceptions import ChannelAccessRefused

from outbox import listen, wire
from outbox.topology import Subscription, dead_letter_queue, tier_name, topology
from outbox_cli.local import Services
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import MakeUser, Permissions, RemoveUser
from outbox_operator.broker.management import Management
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.user_plan import relay_permissions, worker_permissions
from tests.integration.broker_access import Counter, access_to
from tests.integration.relaying import DEADLINE_SECONDS, traffic_between
from tests.integration.working import Calls, workshop_at

DELAYS = (timedelta(milliseconds=50), timedelta(milliseconds=100))


@pytest.fixture
async def access(services: Services, rabbitmq_url: str) -> BrokerAccess:
    return access_to(services, rabbitmq_url)


@asynccontextmanager
async def allowed(access: BrokerAccess, permissions: Permissions) -> AsyncIterator[str]:
    """The URL of a user who may do this and nothing else."""
    name, password = f"user {uuid.uuid4().hex}", uuid.uuid4().hex
    async with Management(access, on_call=Counter()) as broker:
        await broker.perform(MakeUser(name, password, permissions))
        try:
            yield access.uri(name, password)
        finally:
            await broker.perform(RemoveUser(name))


async def provision(access: BrokerAccess, exchange: str, subscription: Subscription) -> None:
    """Make on the broker what a listener needs, as the operator does."""
    async with Management(access, on_call=Counter()) as broker:
        wanted = topology(exchange, [subscription])
        for action in topology_actions(wanted, "shop/listener", await broker.snapshot()).actions:
            await broker.perform(action)


async def test_a_worker_retries_and_dead_letters_with_its_own_rights(
    access: BrokerAccess, rabbitmq_url: str
) -> None:
    async with workshop_at(rabbitmq_url) as workshop:
        calls, queue, exchange = Calls(), workshop.queue(), workshop.exchange_name
        tiers = [tier_name(exchange, delay) for delay in DELAYS]
        await provision(access, exchange, Subscription(queue, ("a",), DELAYS))

        @listen("a", queue=queue, retry_delays=tuple(delay.total_seconds() for delay in DELAYS))
        async def handler(body: Any, attempt_count: int) -> None:
            calls.note(body, attempt_count)
            raise ValueError("always")

        async with allowed(access, worker_permissions(exchange, queue, tiers)) as url:
            running = await workshop.working(handler, rmq_connection_url=url, provisioned=True)
            sent = await workshop.publish("a", "fails")
            letter = await workshop.dead_letter(queue)
            assert letter.message_id == sent
            # With the worker's own words: it may write to the dead-letter exchange.
            assert letter.headers[wire.ERROR] == "always"
            assert calls.attempts == [1, 2, 3]
            # The depth of the dead-letter queue is measured without a right to read it.
            await workshop.publish("a", "fails too")
            await workshop.until_called(calls, 6)
            await workshop.until_empty(queue)
            await running.stop()


async def test_a_relay_publishes_with_its_own_rights(
    access: BrokerAccess, postgres_url: str, rabbitmq_url: str
) -> None:
    async with (
        traffic_between(postgres_url, rabbitmq_url) as traffic,
        allowed(access, relay_permissions(traffic.exchange_name)) as url,
    ):
        inbox = await traffic.inbox("a")
        running = await traffic.relaying(rmq_connection_url=url, provisioned=True, unroutable_grace=0.1)
        await inbox.gets([await traffic.emit("a", 1)])
        unroutable = await traffic.emit("nowhere", 1)
        await traffic.until_parked(unroutable)
        await running.stop()


async def test_a_worker_may_not_touch_what_is_not_its_own(access: BrokerAccess) -> None:
    await provision(access, "outbox", Subscription("mails", ("a",), DELAYS))
    await provision(access, "outbox", Subscription("mailsX", ("a",), DELAYS))
    permissions = worker_permissions("outbox", "mails", ["outbox.delay_50ms"])
    async with allowed(access, permissions) as url, await aio_pika.connect(url) as connection:

        async def refused(call: str, *arguments: Any, **options: Any) -> None:
            channel = await connection.channel()
            underlay = await channel.get_underlay_channel()
            with pytest.raises(ChannelAccessRefused):
                async with asyncio.timeout(10):
                    await getattr(underlay, call)(*arguments, **options)

        await refused("basic_get", "mailsX")
        await refused("basic_get", "mails.dlq")
        await refused("basic_publish", b"", exchange="outbox", routing_key="a")
        await refused("basic_publish", b"", exchange="outbox.delay_100ms", routing_key="mails")
        await refused("basic_publish", b"", exchange="", routing_key="mailsX")
        await refused("queue_declare", "new")
        await refused("queue_delete", "mails")
        await refused("queue_purge", "mailsX")
        await refused("queue_bind", "mails", "outbox", "b")


async def test_a_worker_may_write_to_any_queue_of_the_virtual_host_through_a_shared_tier(
    access: BrokerAccess, rabbitmq_url: str
) -> None:
    """The boundary of what tiers share: see the threat model in docs/security.md."""
    await provision(access, "outbox", Subscription("mails", ("a",), DELAYS))
    tiers = [tier_name("outbox", delay) for delay in DELAYS]
    async with (
        await aio_pika.connect(rabbitmq_url) as owner,
        allowed(access, worker_permissions("outbox", "mails", tiers)) as url,
        await aio_pika.connect(url) as connection,
    ):
        channel = await owner.channel()
        victim = await channel.declare_queue("another.team", durable=True)
        tier = await (await connection.channel()).get_exchange(tiers[0], ensure=False)
        await tier.publish(aio_pika.Message(b"forged"), "another.team")
        message = await _next(victim)
        assert message.body == b"forged"


async def test_a_worker_may_write_to_any_dead_letter_queue_of_its_exchange(
    access: BrokerAccess, rabbitmq_url: str
) -> None:
    """The boundary of what the dead-letter exchange is shared by."""
    for queue in ("mails", "victim"):
        await provision(access, "outbox", Subscription(queue, ("a",), DELAYS))
    async with (
        await aio_pika.connect(rabbitmq_url) as owner,
        allowed(access, worker_permissions("outbox", "mails", ())) as url,
        await aio_pika.connect(url) as connection,
    ):
        letters = await (await owner.channel()).get_queue(dead_letter_queue("victim"), ensure=False)
        exchange = await (await connection.channel()).get_exchange("outbox.dlx", ensure=False)
        await exchange.publish(aio_pika.Message(b"forged"), "victim")
        assert (await _next(letters)).body == b"forged"


async def _next(queue: aio_pika.abc.AbstractQueue) -> aio_pika.abc.AbstractIncomingMessage:
    async with asyncio.timeout(DEADLINE_SECONDS), queue.iterator(no_ack=True) as messages:
        async for message in messages:
            return message
    raise AssertionError("the iterator ended")
