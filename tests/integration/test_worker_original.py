"""Code written for the original library's `Worker` works as it is: every example of its README."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aio_pika
import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import outbox
from outbox import Emitter, Listener, MessageRelay, Reject, Worker, listen, tracking, wire
from tests.integration.relaying import until
from tests.integration.working import Calls, Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


def sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql", "postgresql+asyncpg", 1)


class User(BaseModel):
    id: int
    username: str


async def test_with_all_of_the_original_arguments(workshop: Workshop) -> None:
    calls = Calls()

    @listen("user.created")
    async def on_user_created(user: Any) -> None:
        calls.note(user)

    worker = Worker(
        rmq_connection_url=workshop.rabbitmq_url,
        exchange_name=workshop.exchange_name,
        listeners=[on_user_created],
        retry_delays=(1, 10, 60, 300),
        prefetch_count=10,
        enable_metrics=True,
    )
    await workshop.until_ready(workshop.start(worker))
    await workshop.publish("user.created", {"id": 123, "username": "johndoe"})
    await workshop.until_called(calls, 1)
    assert calls.bodies == [{"id": 123, "username": "johndoe"}]


def test_the_defaults_are_the_original_ones() -> None:
    settings = Worker(rmq_connection_url="amqp://b", enable_metrics=False).settings
    assert (settings.exchange_name, settings.prefetch_count) == ("outbox", 10)
    assert settings.retry_delays == (1, 10, 60, 300)


async def test_a_listener_made_directly(workshop: Workshop) -> None:
    calls = Calls()

    async def on_user_created(user: Any) -> None:
        calls.note(user)

    listener = Listener(
        binding_key="user.created", callback=on_user_created, queue="analytics_service.on_user_created"
    )
    await workshop.working(listener)
    await workshop.publish("user.created", {"id": 1})
    await workshop.until_called(calls, 1)
    assert await workshop.depth("analytics_service.on_user_created") == 0


async def test_a_robust_connection_is_used_and_left_to_its_owner(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails_once(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if attempt_count == 1:
            raise ValueError("again")

    connection = await aio_pika.connect_robust(workshop.rabbitmq_url, heartbeat=30)
    running = await workshop.working(fails_once, rmq_connection=connection)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 2)
    await workshop.until_empty(fails_once.queue)
    await running.stop()
    assert not connection.is_closed
    channel = await connection.channel()
    await channel.close()
    await connection.close()


async def test_wildcards_and_the_routing_key(workshop: Workshop) -> None:
    seen: list[tuple[str, Any]] = []

    @listen("user.*", queue=workshop.queue())
    async def on_user_event(routing_key: str, user: Any) -> None:
        seen.append((routing_key, user))

    await workshop.working(on_user_event)
    await workshop.publish("user.created", {"id": 123})
    await workshop.publish("order.created", {"id": 124})
    await workshop.publish("user.deleted", {"id": 125})
    await workshop.until(lambda: len(seen) == 2, "both users' events")
    assert seen == [("user.created", {"id": 123}), ("user.deleted", {"id": 125})]


async def test_every_argument_by_its_name(workshop: Workshop) -> None:
    seen: dict[str, Any] = {}

    @listen("user.created", queue=workshop.queue())
    async def on_user_created(  # noqa: PLR0917 - as many as there are
        user: Any,
        routing_key: str,
        message: aio_pika.IncomingMessage,
        tracking_ids: Sequence[str],
        queue_name: str,
        attempt_count: int,
    ) -> None:
        seen.update(
            user=user,
            routing_key=routing_key,
            message=message,
            tracking_ids=tracking_ids,
            queue_name=queue_name,
            attempt_count=attempt_count,
        )

    await workshop.working(on_user_created)
    headers = {wire.TRACKING_IDS: json.dumps(["one", "two"])}
    message_id = await workshop.publish("user.created", {"id": 1}, headers=headers)
    await workshop.until(lambda: bool(seen), "the call")
    message = seen.pop("message")
    assert seen == {
        "user": {"id": 1},
        "routing_key": "user.created",
        "tracking_ids": ["one", "two"],
        "queue_name": on_user_created.queue,
        "attempt_count": 1,
    }
    assert isinstance(message, aio_pika.IncomingMessage)
    assert (message.message_id, message.body) == (message_id, b'{"id": 1}')
    assert (message.routing_key, message.exchange) == ("user.created", workshop.exchange_name)
    assert message.headers == headers


async def test_pydantic_models_bytes_and_what_is_no_json(workshop: Workshop) -> None:
    calls = {name: Calls() for name in ("model", "bytes", "anything")}

    @listen("user.created", queue=workshop.queue("model"))
    async def on_user(user: User) -> None:
        calls["model"].note(user)

    @listen("image.uploaded", queue=workshop.queue("bytes"))
    async def process_image(image_data: bytes) -> None:
        calls["bytes"].note(image_data)

    @listen("image.uploaded", queue=workshop.queue("anything"))
    async def anything(body) -> None:  # type: ignore[no-untyped-def]  # as the original's users write it
        calls["anything"].note(body)

    await workshop.working(on_user, process_image, anything)
    await workshop.publish("user.created", User(id=123, username="johndoe").model_dump())
    await workshop.publish("image.uploaded", b"\x89PNG", content_type="application/octet-stream")
    for each in calls.values():
        await workshop.until_called(each, 1)
    assert calls["model"].bodies == [User(id=123, username="johndoe")]
    assert calls["bytes"].bodies == [b"\x89PNG"]
    assert calls["anything"].bodies == [b"\x89PNG"]


async def test_retries_and_rejections(workshop: Workshop) -> None:
    calls = Calls()

    @listen("user.created", queue=workshop.queue("created"), retry_delays=(0.05, 0.1))
    async def on_user_created(user: Any) -> None:
        calls.note(user)
        if user == "transient":
            raise Exception("Will retry with configured delays")  # noqa: TRY002 - as in the README
        if user == "permanent":
            raise Reject

    @listen("user.deleted", queue=workshop.queue("deleted"), retry_delays=())
    async def on_user_deleted(user: Any) -> None:
        raise ValueError("straight to the DLQ")

    await workshop.working(on_user_created, on_user_deleted)
    await workshop.publish("user.created", "transient")
    assert (await workshop.dead_letter(on_user_created.queue)).headers[wire.ATTEMPTS] == 3
    await workshop.publish("user.created", "permanent")
    assert (await workshop.dead_letter(on_user_created.queue)).headers[wire.ATTEMPTS] == 1
    assert calls.bodies == ["transient"] * 3 + ["permanent"]
    await workshop.publish("user.deleted", 1)
    assert (await workshop.dead_letter(on_user_deleted.queue)).headers[wire.ATTEMPTS] == 1


@pytest.mark.parametrize("is_tracked", [False, True])
async def test_tracking_ids_follow_from_the_entrypoint_through_listeners(
    workshop: Workshop, postgres_url: str, is_tracked: bool
) -> None:
    """The README's whole way: emit, relay, listener, its emits, relay, their listeners."""
    engine = create_async_engine(sqlalchemy_url(postgres_url))
    emitter = Emitter(db_engine=engine, auto_create_table=True)
    seen: dict[str, Sequence[str]] = {}

    @listen("user.created", queue=workshop.queue("created"))
    async def on_user_created(user: Any, tracking_ids: Sequence[str]) -> None:
        seen["created"] = tracking_ids
        assert outbox.get_tracking_ids() == list(tracking_ids)
        async with AsyncSession(engine) as session:
            await emitter.emit(session, "user.welcome_email", {"id": user["id"]})
            await emitter.emit(session, "user.created_notification", {"id": user["id"]})
            await session.commit()

    @listen("user.welcome_email", queue=workshop.queue("email"))
    async def on_user_welcome_email(user: Any, tracking_ids: Sequence[str]) -> None:
        seen["email"] = tracking_ids

    @listen("user.created_notification", queue=workshop.queue("notification"))
    async def on_user_created_notification(user: Any, tracking_ids: Any) -> None:
        seen["notification"] = tracking_ids

    async def entrypoint() -> None:
        async with AsyncSession(engine) as session:
            await emitter.emit(session, "user.created", {"id": 123, "username": "johndoe"})
            await session.commit()

    if is_tracked:
        with tracking():
            await entrypoint()
    else:
        await entrypoint()
    await workshop.working(on_user_created, on_user_welcome_email, on_user_created_notification)
    relay = MessageRelay(
        db_engine=engine, rmq_connection_url=workshop.rabbitmq_url, exchange_name=workshop.exchange_name
    )
    stopping = asyncio.Event()
    relaying = asyncio.create_task(relay.run_until(stopping))
    try:
        await until(lambda: len(seen) == 3, lambda: f"all three listeners, not {list(seen)}")
    finally:
        stopping.set()
        await relaying
        await engine.dispose()
    first = list(seen["created"])
    assert len(first) == 1 + is_tracked
    assert list(seen["email"][:-1]) == first
    assert list(seen["notification"][:-1]) == first
    assert seen["email"][-1] != seen["notification"][-1]


async def test_plain_functions_run_in_threads_and_async_ones_in_the_loop(workshop: Workshop) -> None:
    import threading

    threads: dict[str, int] = {}

    @listen("user.created", queue=workshop.queue("async"))
    async def async_handler(user: Any) -> None:
        threads["async"] = threading.get_ident()

    @listen("order.created", queue=workshop.queue("sync"))
    def sync_handler(order: Any) -> None:
        threads["sync"] = threading.get_ident()

    await workshop.working(async_handler, sync_handler)
    await workshop.publish("user.created", 1)
    await workshop.publish("order.created", 1)
    await workshop.until(lambda: len(threads) == 2, "both listeners")
    assert threads["async"] == threading.get_ident() != threads["sync"]


def cpu_intensive_task(image_data: bytes) -> bytes:
    return image_data[::-1]


async def test_work_can_be_handed_to_an_executor(workshop: Workshop) -> None:
    results: list[bytes] = []
    with ThreadPoolExecutor(max_workers=1) as pool:

        @listen("image.uploaded", queue=workshop.queue())
        async def process_image(image_data: bytes) -> None:
            loop = asyncio.get_event_loop()
            results.append(await loop.run_in_executor(pool, cpu_intensive_task, image_data))

        await workshop.working(process_image)
        await workshop.publish("image.uploaded", b"abc", content_type="application/octet-stream")
        await workshop.until(lambda: results == [b"cba"], "the image")


async def test_it_logs_at_the_levels_of_the_original(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def handler(body: int, attempt_count: int) -> None:
        if body == 2 and attempt_count == 1:
            raise ValueError("again")
        if body == 3:
            raise Reject("never")

    with caplog.at_level(logging.DEBUG, "outbox"):
        await workshop.working(handler)
        ids = [await workshop.publish("a", body) for body in (1, 2, 3)]
        ids.append(await workshop.publish("a", "no number"))
        for _ in range(2):
            await workshop.dead_letter(handler.queue)
        await workshop.until_metric(2, "outbox_messages_processed_total", handler.queue, status="success")
        await workshop.until_empty(handler.queue)
    levels = {
        (record.levelname, number)
        for record in caplog.records
        for number, message_id in enumerate(ids, start=1)
        if record.name.startswith("outbox") and message_id in record.getMessage()
    }
    assert {level for level, number in levels if number == 1} == {"INFO"}
    assert {level for level, number in levels if number == 2} == {"WARNING", "INFO"}
    assert {level for level, number in levels if number == 3} == {"WARNING"}
    assert {level for level, number in levels if number == 4} == {"ERROR"}
