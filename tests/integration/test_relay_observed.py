"""What others can see of a relay: hooks, metrics, and what it says when asked."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import pytest
from prometheus_client import REGISTRY, generate_latest

from outbox.table import TableName
from outbox_cli.local import Services
from outbox_cli.local.ports import free_ports
from outbox_core.database import Database
from outbox_relay import Relayed
from outbox_relay.hooks import Hook
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.upkeep import Upkeep
from tests.integration.administrator import management, user_without_rights
from tests.integration.relaying import FULL, Traffic, traffic_between


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


class Notes:
    """Hooks of one kind, and what they were told."""

    def __init__(self, is_async: bool) -> None:
        self.of: dict[str, list[Relayed]] = {"on_published": [], "on_parked": [], "on_error": []}
        self.hooks = {name: self._async_hook(name) if is_async else self._hook(name) for name in self.of}

    def _hook(self, name: str) -> Hook:
        def note(message: Relayed) -> None:
            self.of[name].append(message)

        return note

    def _async_hook(self, name: str) -> Hook:
        async def note(message: Relayed) -> None:
            await asyncio.sleep(0)
            self.of[name].append(message)

        return note


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_hooks_are_told_of_each_message_after_the_fact(traffic: Traffic, is_async: bool) -> None:
    inbox = await traffic.inbox("a")
    full = await traffic.inbox("full", arguments=FULL, is_open=False)
    filling = await traffic.emit("full")
    await traffic.relay().run_once()
    notes = Notes(is_async)
    published = await traffic.emit("a")
    parked = await traffic.emit("nobody.listens")
    retried = await traffic.emit("full")
    await traffic.relaying(**notes.hooks, unroutable_grace=0)
    await traffic.until(lambda: len(notes.of["on_error"]) >= 2, "two failures to be told of")
    await full.open()
    await full.gets([filling, retried])
    await traffic.until(lambda: len(notes.of["on_published"]) == 2, "both successes to be told of")

    await inbox.gets([published])
    first, last = notes.of["on_published"]
    assert first == Relayed(published, "a", attempts=0)
    assert (last.message_id, last.error) == (retried, None)
    assert notes.of["on_parked"] == [
        Relayed(parked, "nobody.listens", attempts=1, error="unroutable: 312 NO_ROUTE")
    ]
    error = "nacked by the broker: a queue is full or not available"
    assert notes.of["on_error"][:2] == [Relayed(retried, "full", attempts, error) for attempts in (1, 2)]
    assert {message.message_id for message in notes.of["on_error"]} == {retried}


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_hook_that_raises_changes_nothing_and_is_logged(
    traffic: Traffic, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def fail(message: Relayed) -> None:
        raise ZeroDivisionError(message.routing_key)

    async def fail_async(message: Relayed) -> None:
        raise ZeroDivisionError(message.routing_key)

    hook = fail_async if is_async else fail
    inbox = await traffic.inbox("a")
    parked = await traffic.emit("nobody.listens")
    sent = await traffic.emit_many(3)
    await traffic.relaying(on_published=hook, on_parked=hook, on_error=hook, unroutable_grace=0)
    await inbox.gets(sent)
    await traffic.until_ids([parked])
    sent.append(await traffic.emit("a"))
    await inbox.gets(sent)
    assert inbox.ids == sent
    failures = {
        f"hook {hook.__qualname__} failed for message {message_id}; nothing changes by it"
        for message_id in (*sent, parked)
    }
    await traffic.until(lambda: failures <= set(caplog.messages), "the log of every failure")


ORIGINAL = {
    "outbox_messages_published_total": {"exchange_name"},
    "outbox_publish_failures_total": {"exchange_name", "failure_type", "error_type"},
    "outbox_message_age_seconds_count": {"exchange_name"},
    "outbox_poll_duration_seconds_count": {"exchange_name"},
    "outbox_table_backlog": {"exchange_name"},
}
"""The original library's metrics, by the labels that dashboards select them by."""

ADDED = {
    "outbox_table_oldest_seconds": {"exchange_name"},
    "outbox_table_parked": {"exchange_name"},
    "outbox_messages_parked_total": {"exchange_name", "reason"},
    "outbox_claimed_batch_size_count": {"exchange_name"},
    "outbox_wakeups_total": {"exchange_name", "reason"},
    "outbox_confirm_latency_seconds_count": {"exchange_name"},
    "outbox_broker_blocked": {"exchange_name"},
    "outbox_table_dead_rows": {"exchange_name"},
    "outbox_vacuum_horizon_held_seconds": {"exchange_name"},
}


def exposed(exchange_name: str) -> dict[str, set[str]]:
    """The labels of every sample with this exchange."""
    return {
        sample.name: set(sample.labels)
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("exchange_name") == exchange_name
    }


async def test_every_metric_is_exposed_under_its_name_and_labels(traffic: Traffic) -> None:
    await traffic.inbox("a")
    await traffic.emit("a")
    await traffic.emit("nobody.listens")
    await traffic.relaying(unroutable_grace=0)
    await traffic.until_table(
        "(SELECT count(*) = 1 FROM outbox_table WHERE parked_at IS NOT NULL)", "the end"
    )
    await traffic.until_asleep()
    await traffic.emit("a")
    wanted = ORIGINAL | ADDED
    await traffic.until(
        lambda: wanted.keys() <= exposed(traffic.exchange_name).keys(), "every metric to have a value"
    )
    found = exposed(traffic.exchange_name)
    assert {name: found[name] for name in wanted} == wanted


async def test_metrics_count_what_happened(traffic: Traffic) -> None:
    inbox = await traffic.inbox("a")
    sent = await traffic.emit_many(5)
    parked = await traffic.emit("nobody.listens")
    relay = traffic.relay(unroutable_grace=0)
    assert await relay.run_once() == 6
    await inbox.gets(sent)
    assert await traffic.ids() == [parked]
    assert traffic.metric("outbox_messages_published_total") == 5
    assert traffic.metric("outbox_message_age_seconds_count") == 5
    assert traffic.metric("outbox_poll_duration_seconds_count") == 1
    assert traffic.metric("outbox_claimed_batch_size_sum") == 6
    assert traffic.metric("outbox_confirm_latency_seconds_count") == 1
    assert traffic.metric("outbox_messages_parked_total", reason="unroutable") == 1
    failures = {"failure_type": "parked", "error_type": "unroutable"}
    assert traffic.metric("outbox_publish_failures_total", **failures) == 1
    assert traffic.metric("outbox_broker_blocked") == 0


async def test_the_backlog_is_measured(traffic: Traffic) -> None:
    relay = traffic.relay()
    await traffic.emit_many(3)
    await traffic.insert(parked_at="now()")
    await traffic.insert(send_after="now() - interval '2 hours'")
    upkeep = Upkeep(
        relay.settings,
        Database(traffic.postgres_url),
        Queries(relay._table),
        Metrics(traffic.exchange_name),
        lambda: 0,
    )
    await upkeep.run_once(traffic.database)
    assert traffic.metric("outbox_table_backlog") == 4
    assert traffic.metric("outbox_table_oldest_seconds") >= 7200
    assert traffic.metric("outbox_table_parked") == 1


async def test_nothing_is_exposed_where_metrics_are_not_wanted(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    sent = await traffic.emit_many(3)
    await traffic.relaying(enable_metrics=False)
    await inbox.gets(sent)
    assert exposed(traffic.exchange_name) == {}
    assert traffic.exchange_name.encode() not in generate_latest(REGISTRY)


async def test_two_relays_in_one_process_share_the_metrics(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    first, second = traffic.relay(batch_size=2), traffic.relay(batch_size=2)
    sent = await traffic.emit_many(4)
    assert [await first.run_once(), await second.run_once()] == [2, 2]
    await inbox.gets(sent)
    assert traffic.metric("outbox_messages_published_total") == 4


async def test_a_relay_tells_why_it_is_not_ready_until_it_is(traffic: Traffic) -> None:
    relay = traffic.relay()
    assert relay.unready_reason() == "start: connecting"
    await traffic.start(relay)
    await traffic.until(lambda: relay.unready_reason() is None, "the relay to be ready")


async def test_a_relay_tells_that_the_broker_is_away(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outbox.relay")
    [port] = free_ports(1)
    relay = traffic.relay(rmq_connection_url=f"amqp://shop:s3cret@127.0.0.1:{port}/")
    await traffic.start(relay)
    await traffic.until(lambda: f"127.0.0.1:{port}" in (relay.unready_reason() or ""), "it to say so")
    reason = relay.unready_reason() or ""
    assert f'broker 127.0.0.1:{port}, vhost "/", user "shop"' in reason
    assert "s3cret" not in reason + caplog.text


async def test_a_relay_that_may_not_publish_is_not_ready_and_says_why(
    traffic: Traffic, services: Services
) -> None:
    with user_without_rights(services) as user:
        parts = urlsplit(traffic.rabbitmq_url)
        everything_but_writing = {"configure": "^$", "write": "^$", "read": ".*"}
        management(services, "PUT", f"permissions/{parts.path[1:]}/{user}", everything_but_writing)
        address = parts.netloc.rpartition("@")[2]
        url = urlunsplit(parts._replace(netloc=f"{user}:{user}@{address}"))
        kept = await traffic.emit("a")
        running = await traffic.start(traffic.relay(rmq_connection_url=url, provisioned=True))
        await traffic.until(
            lambda: "give the user this permission" in (running.relay.unready_reason() or ""), "it to say so"
        )
        row = await traffic.row(kept)
        assert row is not None
        assert (row["attempts"], row["parked_at"]) == (0, None)
        await running.stop()


async def test_a_statement_that_somebody_cancels_is_tried_again(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(lanes=1, listen=False)
    async with traffic.database.transaction():
        await traffic.database.execute("LOCK TABLE outbox_table")
        cancelled = (
            "(SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database() AND application_name = 'outbox-relay')"
        )
        await traffic.until_table(cancelled, "the relay to wait for the table, and be cancelled")
    await inbox.get(await traffic.emit("a"))


async def test_rows_behind_a_parked_one_of_their_key_do_not_make_a_relay_unready(traffic: Traffic) -> None:
    first = await traffic.insert(ordering_key="'k'", parked_at="now()")
    await traffic.insert(ordering_key="'k'")
    minutes = itertools.count()
    upkeep = Upkeep(
        traffic.relay().settings,
        Database(traffic.postgres_url),
        Queries(TableName.parse("outbox_table")),
        Metrics("outbox", exposed=False),
        settled=lambda: 0,
        clock=lambda: 60.0 * next(minutes),
    )
    for _ in range(3):
        await upkeep.run_once(traffic.database)
        assert upkeep.problem is None
    await traffic.database.execute("UPDATE outbox_table SET parked_at = NULL WHERE message_id = $1", first)
    for _ in range(3):
        await upkeep.run_once(traffic.database)
    assert "2 messages are due, and none has been sent" in (upkeep.problem or "")
