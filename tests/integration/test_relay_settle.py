"""What becomes of a row when the broker has answered, or cannot even be asked."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from outbox import OutboxMessage
from outbox_cli.local import Services
from outbox_cli.local.ports import free_ports
from outbox_core import broker
from tests.integration.administrator import suspended_queue
from tests.integration.relaying import FULL, Traffic, traffic_between
from tests.integration.wire import counted


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@pytest.mark.parametrize("choice", ["immediately", "IMMEDIATELY"])
async def test_a_message_that_was_sent_is_deleted_immediately(traffic: Traffic, choice: str) -> None:
    inbox = await traffic.inbox("#")
    sent = await traffic.emit_many(3)
    await traffic.relaying(clean_up_after=choice)
    await inbox.gets(sent)
    await traffic.until_ids([])


@pytest.mark.parametrize("choice", ["never", "NEVER", None, timedelta(hours=1), 3600], ids=str)
async def test_a_message_that_was_sent_is_kept_and_not_sent_again(
    traffic: Traffic, choice: str | timedelta | int | None
) -> None:
    inbox = await traffic.inbox("#")
    sent = await traffic.emit_many(3)
    await traffic.relaying(clean_up_after=choice)
    await inbox.gets(sent)
    await traffic.until_ids(sent, "sent_at IS NOT NULL AND parked_at IS NULL AND last_error IS NULL")
    await inbox.gets([await traffic.emit("a")])
    assert len(inbox.ids) == len(sent) + 1


async def test_a_full_queue_delays_its_messages_and_no_others(traffic: Traffic) -> None:
    full = await traffic.inbox("full", arguments=FULL, is_open=False)
    inbox = await traffic.inbox("free")
    stuck = await traffic.emit_many(5, "full")
    await traffic.relaying()
    await traffic.until_table(
        "(SELECT count(*) = 4 AND sum(attempts) >= 6 FROM outbox_table)",
        "two probes after the first attempts",
    )
    free = await traffic.emit_many(5, "free")
    await inbox.gets(free)
    rows = await traffic.database.fetch("SELECT * FROM outbox_table WHERE routing_key = 'full'")
    assert all(row["sent_at"] is None and row["parked_at"] is None for row in rows)
    assert all("refuses" in row["last_error"] or "nacked" in row["last_error"] for row in rows)

    await full.open()
    await full.gets(stuck)
    await traffic.until_ids([])
    assert sorted(full.ids) == sorted(stuck)
    assert sorted(inbox.ids) == sorted(free)
    failures = {"failure_type": "retried", "error_type": "nacked"}
    await traffic.until_metric(6, "outbox_publish_failures_total", **failures)


async def test_a_full_queue_does_not_flood_its_siblings(traffic: Traffic) -> None:
    full = await traffic.inbox("order.*", arguments=FULL, is_open=False)
    sibling = await traffic.inbox("order.*")
    ids = await traffic.emit_many(20, "order.placed")
    await traffic.relaying()
    await sibling.gets(ids)
    # Several times the longest wait of a message: each would have been sent again and again.
    await asyncio.sleep(3)
    probes = len(sibling.ids) - len(ids)
    assert probes < 5
    await full.open()
    await full.gets(ids)
    await traffic.until_ids([])
    assert sorted(full.ids) == sorted(ids)
    # One message had room at first, each other was sent once more, and each probe was a copy.
    assert len(sibling.ids) <= 2 * len(ids) - 1 + probes + 1


async def test_a_full_queue_with_many_routing_keys_does_not_flood_its_siblings(traffic: Traffic) -> None:
    full = await traffic.inbox("order.*", arguments=FULL, is_open=False)
    sibling = await traffic.inbox("order.*")
    ids = await traffic.emit_all([OutboxMessage(f"order.{number}", number) for number in range(40)])
    await traffic.relaying()
    await sibling.gets(ids)
    # Probes come after half a second and after two and a half.
    await asyncio.sleep(3)
    assert len(sibling.ids) < 1.5 * len(ids)
    await full.open()
    await full.gets(ids)
    await traffic.until_ids([])
    assert sorted(full.ids) == sorted(ids)
    assert len(sibling.ids) < 2.5 * len(ids)


async def test_a_queue_that_drains_slowly_does_not_flood_its_siblings(traffic: Traffic) -> None:
    full = await traffic.inbox("order.*", arguments={**FULL, "x-max-length": 5}, is_open=False)
    sibling = await traffic.inbox("order.*")
    ids = await traffic.emit_many(100, "order.placed")
    await traffic.relaying()
    arrived = set[str]()

    async def handle_one() -> bool:
        if (message := await full.queue.get(fail=False, no_ack=True)) is not None:
            arrived.add(message.message_id or "")
            await asyncio.sleep(0.05)  # what handling it takes
        return len(arrived) == len(ids)

    await traffic.until(handle_one, "every message in the full queue")
    await traffic.until_ids([])
    assert len(sibling.ids) < 4 * len(ids)


async def test_first_attempts_still_reach_the_siblings_of_a_full_queue(traffic: Traffic) -> None:
    await traffic.inbox("order.*", arguments=FULL, is_open=False)
    sibling = await traffic.inbox("order.*")
    await traffic.emit_many(5, "order.placed")
    await traffic.relaying()
    await traffic.until_table("(SELECT count(*) = 4 FROM outbox_table WHERE attempts > 0)", "a full queue")
    await sibling.gets(await traffic.emit_many(5, "order.placed"))


async def test_a_message_nobody_is_bound_for_is_tried_again_and_then_parked_with_the_reason(
    traffic: Traffic,
) -> None:
    inbox = await traffic.inbox("a")
    lonely = await traffic.emit("nobody.listens")
    await traffic.relaying(unroutable_grace=0.2)
    heard = await traffic.emit("a")
    await inbox.gets([heard])
    assert await traffic.until_parked(lonely) == "unroutable: 312 NO_ROUTE"
    row = await traffic.row(lonely)
    assert row is not None
    # 0.05 + 0.1 + 0.2 s: the fourth failure is the first one after the grace.
    assert (row["attempts"], row["sent_at"]) == (4, None)
    await traffic.until_metric(1, "outbox_messages_parked_total", reason="unroutable")
    assert inbox.ids == [heard]


async def test_a_message_nobody_is_bound_for_is_dropped_after_the_grace_where_asked_for(
    traffic: Traffic,
) -> None:
    await traffic.emit("nobody.listens")
    await traffic.relaying(unroutable_grace=0.1, unroutable="drop")
    await traffic.until_ids([])
    await traffic.until_metric(1, "outbox_messages_dropped_total", reason="unroutable")
    failures = {"failure_type": "retried", "error_type": "unroutable"}
    await traffic.until_metric(1, "outbox_publish_failures_total", **failures)


async def test_a_listener_that_appears_within_the_grace_gets_the_message(traffic: Traffic) -> None:
    message_id = await traffic.emit("late")
    await traffic.relaying(unroutable_grace=3600)
    await traffic.until_table("(SELECT attempts > 1 FROM outbox_table)", "a second attempt")
    inbox = await traffic.inbox("late")
    await inbox.gets([message_id])
    await traffic.until_ids([])
    assert inbox.ids == [message_id]


async def test_a_parked_message_goes_out_when_a_person_lets_it(traffic: Traffic) -> None:
    message_id = await traffic.emit("late")
    await traffic.relaying(unroutable_grace=0)
    await traffic.until_parked(message_id)
    inbox = await traffic.inbox("late")
    await traffic.database.execute("UPDATE outbox_table SET parked_at = NULL")
    await inbox.gets([message_id])
    await traffic.until_ids([])
    assert inbox.ids == [message_id]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"headers": "'[1, 2]'"}, "headers must be a JSON object, not [1, 2]"),
        ({"headers": "'\"text\"'"}, 'headers must be a JSON object, not "text"'),
        (
            {"headers": """('{"n": 1' || repeat('0', 5000) || '}')::jsonb"""},
            "headers cannot be read: Exceeds the limit",
        ),
        (
            {"headers": """('{"n": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb"""},
            # By json.loads, or from Python 3.14 on, whose limit is the size of the stack, by what encodes it.
            "nested too deeply",
        ),
        ({"headers": """'{"n": 9223372036854775808}'"""}, "header 'n': the number is larger than 64 bits"),
        ({"headers": """jsonb_build_object(repeat('n', 300), 1)"""}, "the name is 300 bytes long"),
        ({"routing_key": "repeat('k', 300)"}, "the routing key is 300 bytes long and AMQP takes 255"),
        ({"content_type": "repeat('t', 300)"}, "the content type is 300 bytes long and AMQP takes 255"),
        ({"created_at": "'infinity'"}, "created_at is infinite"),
        ({"created_at": "'1969-01-01'"}, "the timestamp -"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value.values())[:40],
)
async def test_a_row_written_wrongly_by_hand_is_parked_at_once_and_those_behind_it_arrive(
    traffic: Traffic, columns: dict[str, str], reason: str
) -> None:
    inbox = await traffic.inbox("#")
    poison = await traffic.insert(**columns)
    keyed_poison = await traffic.insert(**columns, ordering_key="'k'")
    behind = await traffic.emit_many(3)
    await traffic.relaying()
    await inbox.gets(behind)
    for message_id in (poison, keyed_poison):
        assert reason in await traffic.until_parked(message_id)
    await inbox.gets([await traffic.emit("a")])
    await traffic.until_ids([poison, keyed_poison])
    assert not {poison, keyed_poison} & set(inbox.ids)
    row = await traffic.row(poison)
    assert row is not None
    assert row["attempts"] == 1
    await traffic.until_metric(2, "outbox_messages_parked_total", reason="malformed")


async def test_a_body_larger_than_the_broker_takes_is_parked(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    large, exact, small = await traffic.emit_all(
        [OutboxMessage("a", b"x" * size) for size in (1001, 1000, 1)]
    )
    await traffic.relaying(max_message_size=1000)
    await inbox.gets([exact, small])
    reason = "the body is 1001 bytes long and the broker takes 1000"
    assert await traffic.until_parked(large) == reason
    assert sorted(inbox.ids) == sorted([exact, small])


async def test_a_message_over_which_the_broker_closes_the_channel_is_found_and_parked(
    traffic: Traffic,
) -> None:
    """RabbitMQ refuses a user-chosen CC header that is no list by closing the channel over it."""
    inbox = await traffic.inbox("#")
    before = await traffic.emit_many(3)
    poison = await traffic.emit("a", headers={"CC": "not a list"})
    behind = await traffic.emit_many(3)
    await traffic.relaying()
    await inbox.gets([*before, *behind])
    assert "CC" in await traffic.until_parked(poison)
    await traffic.until_ids([poison])
    await inbox.gets([await traffic.emit("a")])
    assert poison not in inbox.ids


async def test_one_by_one_over_a_slow_link_settles_as_it_goes(traffic: Traffic) -> None:
    # It confirms later than the broker closes the channel.
    inbox = await traffic.inbox("#", arguments={"x-queue-type": "quorum"}, durable=True)
    before = await traffic.emit_many(50)
    poison = await traffic.emit("a", headers={"CC": "not a list"})
    async with counted(traffic.rabbitmq_url, delay_seconds=0.2) as slow:
        # One by one they take 10 s, and the server ends a transaction after 6 s.
        await traffic.relaying(rmq_connection_url=slow.url, publish_timeout=1, lanes=1)
        assert "CC" in await traffic.until_parked(poison)
        await inbox.gets(before)
        await traffic.until_ids([poison])
        await traffic.stop_all()
    # All at once, and then each alone: once while the batch was cut short, never again and again.
    assert len(inbox.ids) <= 2 * len(before) + 10


async def test_by_the_plain_path_a_stuck_queue_multiplies_no_message(
    traffic: Traffic, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "fast_path", lambda: None)
    stuck, free = await traffic.inbox("stuck"), await traffic.inbox("free")
    async with suspended_queue(services, traffic.rabbitmq_url, stuck.queue.name):
        held, passed = await traffic.emit_many(5, "stuck"), await traffic.emit_many(5, "free")
        await traffic.relaying(publish_timeout=1)
        await traffic.until_ids(held)
        await free.gets(passed)
        await traffic.until_ids(held, "attempts = 1 AND last_error LIKE 'not confirmed%'")
    await stuck.gets(held)
    await traffic.until_ids([])
    assert (sorted(stuck.ids), sorted(free.ids)) == (sorted(held), sorted(passed))


async def test_a_message_that_fails_too_often_is_parked(traffic: Traffic) -> None:
    full = await traffic.inbox("full", arguments=FULL, is_open=False)
    first, second = await traffic.emit("full"), await traffic.emit("full")
    await traffic.relaying(max_attempts=3)
    reason = "nacked by the broker: a queue is full or not available (attempt 3 of 3)"
    assert await traffic.until_parked(second) == reason
    row = await traffic.row(second)
    assert row is not None
    assert row["attempts"] == 3
    await full.open()
    await full.gets([first])
    assert full.ids == [first]
    await traffic.until_ids([second])


async def test_an_exchange_that_is_deleted_is_declared_again_and_nothing_is_lost(traffic: Traffic) -> None:
    await traffic.relaying(unroutable_grace=3600)
    await traffic.exchange.delete()
    message_id = await traffic.emit("a")
    await traffic.until_table("(SELECT attempts > 0 FROM outbox_table)", "an attempt that was returned")
    inbox = await traffic.inbox("#")
    await inbox.gets([message_id])
    await traffic.until_ids([])


async def test_a_provisioned_exchange_that_is_deleted_is_waited_for_and_burns_no_attempts(
    traffic: Traffic,
) -> None:
    await traffic.relaying(provisioned=True)
    await traffic.exchange.delete()
    message_id = await traffic.emit("a")

    def failures() -> float:
        return traffic.metric(
            "outbox_publish_failures_total", failure_type="broker", error_type="ExchangeMissingError"
        )

    await traffic.until(lambda: failures() >= 2, "two failures")
    await traffic.until_ids([message_id], "attempts = 0 AND parked_at IS NULL")
    traffic.exchange = await traffic.channel.declare_exchange(traffic.exchange_name, "topic", durable=True)
    inbox = await traffic.inbox("#")
    await inbox.gets([message_id])
    await traffic.until_ids([])


async def test_run_once_moves_one_batch(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    sent = await traffic.emit_many(5)
    relay = traffic.relay(batch_size=3)
    assert await relay.run_once() == 3
    assert await traffic.ids() == sent[3:]
    assert await relay.run_once() == 2
    assert await relay.run_once() == 0
    await inbox.gets(sent)
    assert inbox.ids == sent
    assert await traffic.ids() == []


async def test_stopping_finishes_what_is_under_way_and_leaves_the_rest(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    sent = await traffic.emit_many(2_000)
    running = await traffic.relaying(batch_size=20)
    await traffic.until(lambda: len(inbox.ids) > 0, "the first message")
    await running.stop()
    left = await traffic.ids()
    await inbox.gets(set(sent) - set(left))
    assert sorted(inbox.ids + left) == sorted(sent)


async def test_stopping_while_it_sleeps_takes_no_timeout(traffic: Traffic) -> None:
    running = await traffic.relaying(notification_timeout=300, poll_interval=300)
    await traffic.until_asleep()
    await running.stop()
    assert await traffic.database.fetchval(
        "SELECT count(*) = 0 FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'outbox-relay%' AND state <> 'idle'"
    )


async def test_stopping_while_nobody_answers_is_possible(traffic: Traffic) -> None:
    [port] = free_ports(1)
    running = await traffic.start(traffic.relay(rmq_connection_url=f"amqp://guest:guest@127.0.0.1:{port}/"))
    await traffic.until(
        lambda: "waiting: broker" in (running.relay.unready_reason() or ""), "it to say what is away"
    )
    await running.stop()
