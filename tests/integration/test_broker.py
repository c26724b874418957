"""The connection to the broker: what a refusal says, and that it comes back after whatever happens."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import aio_pika
import pytest

from outbox.topology import Exchange, Topology
from outbox_cli.local import Services, start
from outbox_cli.local.rabbitmq import RabbitMQServer
from outbox_core.broker import Broker, BrokerState
from outbox_core.broker_errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerLostError,
    ConnectError,
    MessageRefusedError,
    PublishTimeoutError,
    TopologyConflictError,
    TopologyMissingError,
    UnreachableError,
    VhostMissingError,
)
from outbox_core.publisher import CONFIRMED, Message
from tests.integration.administrator import connection_names, management, rabbitmqctl, user_without_rights
from tests.integration.test_worker_inbox import Door

DEADLINE = 60.0
EXCHANGE = "outbox"
TOPOLOGY = Topology(exchanges=(Exchange(EXCHANGE, "topic"),), queues=(), bindings=())


def message(body: bytes = b"{}") -> Message:
    return Message(routing_key="key", body=body, message_id=str(uuid.uuid4()), timestamp=1_700_000_000)


async def until(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < deadline, f"not within {DEADLINE:g} s: {what}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Broker]:
    """A broker that keeps itself connected, as in a relay."""
    run = asyncio.create_task(broker.run())
    try:
        await asyncio.wait_for(broker.wait_ready(), DEADLINE)
        yield broker
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        await broker.aclose()


async def queue_on(url: str) -> None:
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue("q", durable=True, arguments={"x-queue-type": "quorum"})
        await queue.bind(exchange, "key")


@pytest.fixture(scope="module")
def private() -> Iterator[RabbitMQServer]:
    """A broker that may be killed and starved, with a queue."""
    with start(postgres=False, environment={}) as services:
        server = services.rabbitmq
        if not isinstance(server, RabbitMQServer):
            pytest.skip("needs RabbitMQ from the programs on this machine")
        asyncio.run(queue_on(server.url))
        # Killed just after a quorum queue was declared, RabbitMQ 3.10 forgets the queue's log with all it had
        # confirmed, and the queue never has a leader again. Stopped in order, it writes down what it needs.
        server.stop()
        server.start()
        yield server


@pytest.fixture
def private_url(private: RabbitMQServer) -> str:
    return private.url


# --- Connecting ---------------------------------------------------------------------------------------------


def changed(url: str, **parts: str) -> str:
    """`url` with another user, password, host, port or path."""
    split = urlsplit(url)
    found = {"user": split.username, "password": split.password, "host": split.hostname, "port": split.port}
    new = found | parts
    netloc = f"{new['user']}:{new['password']}@{new['host']}:{new['port']}"
    return urlunsplit(split._replace(netloc=netloc, path=parts.get("path", split.path)))


REFUSED = [
    (
        {"password": "wr0ng"},
        AuthenticationError,
        "the user or the password is wrong; correct the credentials",
    ),
    ({"path": "/absent"}, VhostMissingError, "the vhost does not exist; create it or correct the URL"),
    ({"port": "1"}, UnreachableError, "is it running, and can it be reached from here"),
    ({"host": "no-such-host.invalid"}, UnreachableError, "is it running, and can it be reached from here"),
]


@pytest.mark.parametrize(("change", "kind", "cure"), REFUSED)
async def test_a_refusal_names_the_broker_and_the_cure_in_one_line_without_the_password(
    services: Services,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, str],
    kind: type[ConnectError],
    cure: str,
) -> None:
    url = changed(services.rabbitmq.url, **change)
    parts = urlsplit(url)
    caplog.set_level(logging.DEBUG)

    with pytest.raises(kind) as caught:
        await Broker(url, name="test").connect_once()

    text = str(caught.value)
    assert "\n" not in text
    vhost, user = parts.path[1:] or "/", parts.username
    assert f'broker {parts.hostname}:{parts.port}, vhost "{vhost}", user "{user}": ' in text
    assert cure in text
    shown = [text, repr(caught.value), caplog.text, *(repr(vars(record)) for record in caplog.records)]
    assert parts.password
    assert not any(parts.password in words for words in shown)


async def test_a_user_without_rights_in_the_vhost_is_told_so(services: Services, rabbitmq_url: str) -> None:
    with user_without_rights(services) as name:
        url = changed(rabbitmq_url, user=name, password=name)
        with pytest.raises(AuthenticationError, match="may not use this vhost; give it permissions there"):
            await Broker(url, name="test").connect_once()


async def test_something_that_is_no_broker_is_unreachable() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        broker = Broker(f"amqp://u:p@127.0.0.1:{port}", name="test", connect_timeout_seconds=0.2)
        with pytest.raises(UnreachableError, match="no answer within 0.2 s; is it a broker"):
            await broker.connect_once()


async def test_nothing_shows_the_password_while_it_works(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await queue_on(rabbitmq_url)
    caplog.clear()
    async with Broker(rabbitmq_url, name="test") as broker:
        publisher = await broker.publisher()
        assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
        shown = repr([broker, vars(publisher), broker.state, str(broker.address)])

    password = urlsplit(rabbitmq_url).password
    assert password
    assert caplog.records
    assert password not in caplog.text + shown


async def test_the_broker_shows_who_is_connected(services: Services, rabbitmq_url: str) -> None:
    async with Broker(rabbitmq_url, name="outbox-relay@shop-7"):
        async with asyncio.timeout(DEADLINE):
            while "outbox-relay@shop-7" not in await asyncio.to_thread(connection_names, services):
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("vhost", ["a/b", "größe 1", "a%b"])
async def test_a_vhost_may_have_any_name(services: Services, vhost: str) -> None:
    quoted = quote(vhost, safe="")
    management(services, "PUT", f"vhosts/{quoted}")
    permissions = {"configure": ".*", "write": ".*", "read": ".*"}
    user = urlsplit(services.rabbitmq.url).username
    management(services, "PUT", f"permissions/{quoted}/{user}", permissions)
    try:
        async with Broker(changed(services.rabbitmq.url, path=f"/{quoted}"), name="test") as broker:
            assert broker.address.vhost == vhost
            await broker.declare(TOPOLOGY)
    finally:
        management(services, "DELETE", f"vhosts/{quoted}")


async def test_connecting_twice_at_once_connects_once(rabbitmq_url: str) -> None:
    states: list[BrokerState] = []
    broker = Broker(rabbitmq_url, name="test", on_change=states.append)
    await asyncio.gather(broker.connect_once(), broker.connect_once(), broker.connect_once())
    assert states == [BrokerState(is_connected=True)]
    await broker.aclose()


async def test_closing_while_connecting_leaves_no_connection(rabbitmq_url: str) -> None:
    broker = Broker(rabbitmq_url, name="test")
    run = asyncio.create_task(broker.run())
    await asyncio.sleep(0)
    assert not broker.is_connected

    await broker.aclose()
    await asyncio.wait_for(run, DEADLINE)

    assert broker._own is not None
    assert broker._own.is_closed
    with pytest.raises(UnreachableError, match="closed"):
        await broker.connect_once()


def test_a_broker_needs_a_url_or_a_connection_and_not_both() -> None:
    with pytest.raises(TypeError, match="either a URL or a connection"):
        Broker(name="test")


# --- Several hosts ------------------------------------------------------------------------------------------


def several(url: str, *ports: int | str | None) -> str:
    """The URL with this machine at each of the ports."""
    split = urlsplit(url)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return urlunsplit(split._replace(netloc=f"{split.username}:{split.password}@{hosts}"))


async def test_the_next_host_is_used_if_one_refuses_the_connection(rabbitmq_url: str) -> None:
    port = urlsplit(rabbitmq_url).port
    for _ in range(5):
        async with Broker(several(rabbitmq_url, 1, port, 2), name="test") as broker:
            assert broker.address.port == port


async def test_the_next_host_is_used_if_one_does_not_answer(rabbitmq_url: str) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    port = urlsplit(rabbitmq_url).port
    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        url = several(rabbitmq_url, server.sockets[0].getsockname()[1], port)
        for _ in range(5):
            async with Broker(url, name="test", connect_timeout_seconds=2) as broker:
                assert broker.address.port == port


async def test_hosts_may_be_ipv6_addresses_behind_a_password_of_special_characters(
    services: Services, rabbitmq_url: str
) -> None:
    parts, password = urlsplit(rabbitmq_url), "p,@:/[é?#%2C"
    door = Door(parts.hostname or "", parts.port or 5672, own_host="::1")
    await door.open()
    with user_without_rights(services) as name:
        management(services, "PUT", f"users/{name}", {"password": password, "tags": ""})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        management(services, "PUT", f"permissions/{parts.path[1:]}/{name}", everything)
        login = f"{name}:{quote(password, safe='')}"
        url = f"amqp://{login}@[::1]:1,127.0.0.1:1,[::1]:{door.own_port}{parts.path}"
        async with Broker(url, name="test") as broker:
            assert (broker.address.host, broker.address.port) == ("::1", door.own_port)
    await door.shut()


async def test_hosts_are_tried_in_random_order(rabbitmq_url: str) -> None:
    first, second = [await opened_door(rabbitmq_url) for _ in range(2)]
    used: set[int] = set()
    try:
        async with asyncio.timeout(DEADLINE):
            while len(used) < 2:
                url = several(rabbitmq_url, first.own_port, second.own_port)
                async with Broker(url, name="test") as broker:
                    used.add(broker.address.port)
    finally:
        await first.shut()
        await second.shut()


async def test_another_host_is_used_if_that_of_the_connection_goes_away(rabbitmq_url: str) -> None:
    await queue_on(rabbitmq_url)
    doors = {door.own_port: door for door in [await opened_door(rabbitmq_url) for _ in range(2)]}
    states: list[BrokerState] = []
    broker = Broker(several(rabbitmq_url, *doors), name="test", on_change=states.append)
    async with running(broker):
        lost = broker.address.port
        await doors.pop(lost).shut()
        [other] = doors
        await until(lambda: broker.is_connected and broker.address.port == other, "the other host is used")
        assert f"broker 127.0.0.1:{lost}, " in str(states[1].problem)
        publisher = await broker.publisher()
        assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
    await doors[other].shut()


async def test_an_error_says_which_hosts_were_tried_and_why_each_failed(rabbitmq_url: str) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        silent = server.sockets[0].getsockname()[1]
        broker = Broker(several(rabbitmq_url, 1, silent), name="test", connect_timeout_seconds=0.2)
        with pytest.raises(UnreachableError, match="no host accepts a connection: ") as caught:
            await broker.connect_once()

    text = str(caught.value)
    assert f"127.0.0.1:{silent}: no answer within 0.2 s; is it a broker?" in text
    assert "127.0.0.1:1: Connect call failed" in text
    assert str(urlsplit(rabbitmq_url).password) not in text


async def test_a_wrong_password_is_told_of_the_one_host_that_refused_it(rabbitmq_url: str) -> None:
    port = urlsplit(rabbitmq_url).port
    url = several(changed(rabbitmq_url, password="wr0ng"), 1, port)  # noqa: S106 - made up
    with pytest.raises(AuthenticationError, match=f"^broker 127.0.0.1:{port}, .*password is wrong"):
        await Broker(url, name="test").connect_once()


async def opened_door(url: str) -> Door:
    parts = urlsplit(url)
    door = Door(parts.hostname or "", parts.port or 5672)
    await door.open()
    return door


# --- Exchanges ----------------------------------------------------------------------------------------------


async def test_an_exchange_is_declared_once_and_found(rabbitmq_url: str) -> None:
    async with Broker(rabbitmq_url, name="test") as broker:
        with pytest.raises(TopologyMissingError, match='missing on the broker: exchange "outbox"; declare'):
            await broker.check(TOPOLOGY)
        await broker.declare(TOPOLOGY)
        await broker.declare(TOPOLOGY)
        await broker.check(TOPOLOGY)
        assert broker.is_connected


async def test_an_exchange_of_another_kind_is_not_taken_for_ours(rabbitmq_url: str) -> None:
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.DIRECT, durable=True)
    async with Broker(rabbitmq_url, name="test") as broker:
        with pytest.raises(TopologyConflictError, match='"outbox" exists as something else .*delete it'):
            await broker.declare(TOPOLOGY)


async def test_who_may_not_declare_may_still_check(services: Services, rabbitmq_url: str) -> None:
    await queue_on(rabbitmq_url)
    with user_without_rights(services) as name:
        vhost = urlsplit(rabbitmq_url).path[1:]
        rights = {"configure": "^$", "write": "^(outbox|other)$", "read": "^$"}
        management(services, "PUT", f"permissions/{vhost}/{name}", rights)
        async with Broker(changed(rabbitmq_url, user=name, password=name), name="test") as broker:
            await broker.check(TOPOLOGY)
            await broker.declare(TOPOLOGY)
            other = Topology(exchanges=(Exchange("other", "topic"),), queues=(), bindings=())
            with pytest.raises(TopologyMissingError, match='may not make them: exchange "other" .ACCESS_REF'):
                await broker.declare(other)
            publisher = await broker.publisher()
            assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
            with pytest.raises(AccessRefusedError, match='exchange "amq.topic": ACCESS_REFUSED'):
                await publisher.publish("amq.topic", [message()], DEADLINE)


async def test_what_a_user_has_no_right_on_is_taken_to_be_there(
    services: Services, rabbitmq_url: str
) -> None:
    """From RabbitMQ 4.3 on it is hidden, and a worker has no right on the exchange of its queue."""
    await queue_on(rabbitmq_url)
    with user_without_rights(services) as name:
        vhost = urlsplit(rabbitmq_url).path[1:]
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        management(services, "PUT", f"permissions/{vhost}/{name}", nothing)
        async with Broker(changed(rabbitmq_url, user=name, password=name), name="test") as broker:
            await broker.check(TOPOLOGY)
            await broker.declare(TOPOLOGY)


async def test_a_topic_that_the_user_may_not_publish_is_told_from_a_lost_broker(
    services: Services, rabbitmq_url: str
) -> None:
    await queue_on(rabbitmq_url)
    with user_without_rights(services) as name:
        vhost = urlsplit(rabbitmq_url).path[1:]
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        management(services, "PUT", f"permissions/{vhost}/{name}", everything)
        one_topic = {"exchange": EXCHANGE, "write": "^key$", "read": ".*"}
        management(services, "PUT", f"topic-permissions/{vhost}/{name}", one_topic)
        async with Broker(changed(rabbitmq_url, user=name, password=name), name="test") as broker:
            publisher = await broker.publisher()
            assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
            other = Message(routing_key="other", body=b"", message_id="m", timestamp=0)
            with pytest.raises(MessageRefusedError, match="access to topic 'other' .* one by one"):
                await publisher.publish(EXCHANGE, [message(), other], DEADLINE)


# --- A connection that the user gives -----------------------------------------------------------------------


@pytest.mark.parametrize("connect", [aio_pika.connect, aio_pika.connect_robust])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_given_connection_is_used_and_never_closed(
    rabbitmq_url: str, connect: Callable[[str], Any], plain: bool
) -> None:
    await queue_on(rabbitmq_url)
    async with await connect(rabbitmq_url) as connection:
        async with running(Broker(connection=connection, name="test")) as broker:
            publisher = await broker.publisher(plain=plain)
            assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
            await publisher.aclose()
        assert not connection.is_closed
        async with connection.channel() as channel:
            assert await (await channel.get_queue("q")).get()


async def test_a_given_connection_that_cannot_come_back_ends_the_run(rabbitmq_url: str) -> None:
    connection = await aio_pika.connect(rabbitmq_url)
    broker = Broker(connection=connection, name="test")
    await broker.connect_once()
    await connection.close()

    async with asyncio.timeout(DEADLINE):
        with pytest.raises(BrokerLostError, match="given is closed; give one of connect_robust, or a URL"):
            await broker.run()
    assert not broker.is_connected


# --- Outages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
async def test_a_broker_killed_in_a_batch_loses_the_batch_and_comes_back(
    private: RabbitMQServer, private_url: str, plain: bool
) -> None:
    states: list[BrokerState] = []
    async with running(Broker(private_url, name="test", on_change=states.append)) as broker:
        publisher = await broker.publisher(plain=plain)
        idle = await broker.publisher(plain=plain)
        assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
        batch = [message(bytes(2**20)) for _ in range(200)]
        publishing = asyncio.create_task(publisher.publish(EXCHANGE, batch, DEADLINE))
        await asyncio.sleep(0)

        await asyncio.to_thread(private.kill)
        with pytest.raises(BrokerLostError):
            await publishing
        await until(lambda: not broker.is_connected, "the loss is noticed")
        assert not idle.is_usable
        with pytest.raises(BrokerLostError, match='broker 127.0.0.1:.*vhost "/", user "outbox": '):
            await broker.publisher(plain=plain)
        await publisher.aclose()

        await asyncio.to_thread(private.start)
        await asyncio.wait_for(broker.wait_ready(), DEADLINE)
        again = await broker.publisher(plain=plain)
        assert await again.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]

    connected = [state.is_connected for state in states]
    assert (connected[0], connected[-2], connected[-1]) == (True, True, False)
    problems = [state.problem for state in states if state.problem]
    assert any("the connection was lost" in problem for problem in problems)
    assert any("is it running" in problem for problem in problems)
    assert not any(private.url in problem for problem in problems)


async def test_a_broker_that_is_not_there_yet_is_waited_for(
    private: RabbitMQServer, private_url: str
) -> None:
    await asyncio.to_thread(private.stop)
    broker = Broker(private_url, name="test")
    run = asyncio.create_task(broker.run())
    await until(lambda: broker.state.problem, "the first attempt")
    assert not broker.is_connected

    await asyncio.to_thread(private.start)
    await asyncio.wait_for(broker.wait_ready(), DEADLINE)

    await broker.aclose()
    await asyncio.wait_for(run, DEADLINE)


async def test_a_given_robust_connection_comes_back_and_so_do_we(
    private: RabbitMQServer, private_url: str
) -> None:
    connection = await aio_pika.connect_robust(private_url, reconnect_interval=0.2)
    async with connection, running(Broker(connection=connection, name="test")) as broker:
        publisher = await broker.publisher()
        await asyncio.to_thread(private.kill)
        await until(lambda: not broker.is_connected, "the loss is noticed")
        with pytest.raises(BrokerLostError):
            await publisher.publish(EXCHANGE, [message()], DEADLINE)

        await asyncio.to_thread(private.start)
        await asyncio.wait_for(broker.wait_ready(), DEADLINE)
        again = await broker.publisher()
        assert await again.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]


async def test_a_connection_closed_by_an_administrator_comes_back(
    services: Services, rabbitmq_url: str
) -> None:
    await queue_on(rabbitmq_url)
    name = f"outbox-relay@{uuid.uuid4()}"
    states: list[BrokerState] = []
    async with running(Broker(rabbitmq_url, name=name, on_change=states.append)) as broker:
        async with asyncio.timeout(DEADLINE):
            while name not in (names := await asyncio.to_thread(connection_names, services)):
                await asyncio.sleep(0.1)
        management(services, "DELETE", f"connections/{quote(names[name], safe='')}")

        await until(lambda: len(states) >= 3 and broker.is_connected, "lost and connected again")
        publisher = await broker.publisher()
        assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
    assert "CONNECTION_FORCED" in (states[1].problem or "")


# --- Alarms -------------------------------------------------------------------------------------------------


@pytest.fixture
def memory_alarm(private: RabbitMQServer) -> Iterator[Callable[[bool], None]]:
    """Raises and clears the broker's memory alarm."""

    def switch(on: bool) -> None:
        rabbitmqctl(private, "set_vm_memory_high_watermark", "0.00001" if on else "0.6")

    yield switch
    switch(False)


async def test_a_broker_with_an_alarm_blocks_us_and_unblocks_us(
    private_url: str, memory_alarm: Callable[[bool], None]
) -> None:
    async with running(Broker(private_url, name="test")) as broker:
        publisher = await broker.publisher()
        assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
        assert (broker.is_blocked, broker.blocked_reason) == (False, None)

        await asyncio.to_thread(memory_alarm, True)
        # RabbitMQ blocks a connection when it next publishes.
        publishing = asyncio.create_task(publisher.publish(EXCHANGE, [message(), message()], DEADLINE))
        await until(lambda: broker.is_blocked, "the connection is blocked")
        assert broker.blocked_reason == "low on memory"
        assert broker.is_connected
        ready = asyncio.create_task(broker.wait_ready())
        await asyncio.sleep(0)
        assert not ready.done()
        assert not publishing.done()

        await asyncio.to_thread(memory_alarm, False)
        await asyncio.wait_for(ready, DEADLINE)
        assert not broker.is_blocked
        assert await publishing == [CONFIRMED, CONFIRMED]


async def test_late_answers_after_a_timeout_are_not_taken_for_those_of_a_later_batch(
    private_url: str, memory_alarm: Callable[[bool], None]
) -> None:
    async with running(Broker(private_url, name="test")) as broker:
        publisher = await broker.publisher()
        await asyncio.to_thread(memory_alarm, True)
        with pytest.raises(PublishTimeoutError):
            await publisher.publish(EXCHANGE, [message() for _ in range(10)], 0.5)
        await publisher.aclose()
        await asyncio.to_thread(memory_alarm, False)
        await asyncio.wait_for(broker.wait_ready(), DEADLINE)

        again = await broker.publisher()
        nowhere = Message(routing_key="nowhere", body=b"", message_id="m", timestamp=0)
        outcomes = await again.publish(EXCHANGE, [nowhere, message()], DEADLINE)

        assert outcomes[0] != CONFIRMED
        assert outcomes[1] == CONFIRMED
        assert broker.is_connected
        assert again.is_usable


async def test_closing_does_not_wait_for_a_broker_that_has_blocked_us(
    private_url: str, memory_alarm: Callable[[bool], None]
) -> None:
    """It reads nothing any more: what is left of a large batch could never be written."""
    broker = Broker(private_url, name="test")
    await broker.connect_once()
    publisher = await broker.publisher()
    await asyncio.to_thread(memory_alarm, True)
    batch = [message(bytes(2**20)) for _ in range(50)]
    publishing = asyncio.create_task(publisher.publish(EXCHANGE, batch, DEADLINE))
    await until(lambda: broker.is_blocked, "the connection is blocked")

    async with asyncio.timeout(DEADLINE / 2):
        await publisher.aclose()
        await broker.aclose()
    with pytest.raises(BrokerLostError):
        await publishing
