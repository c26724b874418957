"""What others can see of a worker: hooks, metrics, spans, and a warning where a listener blocks the loop."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import REGISTRY, generate_latest

from outbox import Reject, listen
from outbox.tracing import trace_headers
from outbox_worker import Handled
from outbox_worker.hooks import Hook
from tests.integration.working import Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


class Notes:
    """Hooks of one kind, and what they were told."""

    def __init__(self, is_async: bool) -> None:
        self.of: dict[str, list[Handled]] = {"on_success": [], "on_retry": [], "on_dead_letter": []}
        self.hooks = {name: self._async_hook(name) if is_async else self._hook(name) for name in self.of}

    def _hook(self, name: str) -> Hook:
        def note(message: Handled) -> None:
            self.of[name].append(message)

        return note

    def _async_hook(self, name: str) -> Hook:
        async def note(message: Handled) -> None:
            await asyncio.sleep(0)
            self.of[name].append(message)

        return note


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("ordered", [False, True], ids=["", "ordered"])
async def test_hooks_are_told_of_each_message_after_the_fact(
    workshop: Workshop, is_async: bool, ordered: bool
) -> None:
    error = ValueError("broken")

    @listen("a.*", queue=workshop.queue(), retry_delays=(0.05,), ordered=ordered)
    async def handler(body: Any) -> None:
        if body == "fails":
            raise error

    notes = Notes(is_async)
    await workshop.working(handler, **notes.hooks)
    succeeds = await workshop.publish("a.b", "works")
    fails = await workshop.publish("a.c", "fails")
    await workshop.until(lambda: len(notes.of["on_dead_letter"]) == 1, "the dead letter to be told of")
    queue = handler.queue
    assert notes.of["on_success"] == [Handled(succeeds, "a.b", queue, 1)]
    assert notes.of["on_retry"] == [Handled(fails, "a.c", queue, 1, error, timedelta(seconds=0.05))]
    assert notes.of["on_dead_letter"] == [Handled(fails, "a.c", queue, 2, error)]


async def test_a_hook_that_raises_changes_nothing_and_is_logged(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: Handled) -> None:
        raise ZeroDivisionError(message.queue)

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def handler(body: Any) -> None:
        if body == "fails":
            raise ValueError

    await workshop.working(handler, on_success=fail, on_retry=fail, on_dead_letter=fail)
    ids = [await workshop.publish("a", "works"), await workshop.publish("a", "fails")]
    await workshop.dead_letter(handler.queue)
    await workshop.until_empty(handler.queue)
    for message_id in ids:
        assert f"failed for message {message_id}; nothing changes by it" in caplog.text


ORIGINAL = {
    "outbox_messages_received_total": {"queue", "exchange_name"},
    "outbox_messages_processed_total": {"queue", "exchange_name", "status"},
    "outbox_retry_attempts_total": {"queue", "delay_seconds"},
    "outbox_message_processing_duration_seconds_count": {"queue", "exchange_name"},
    "outbox_dlq_messages": {"queue"},
    "outbox_active_consumers": {"queue", "exchange_name"},
}
"""The original library's metrics, by the labels that dashboards select them by."""

ADDED = {
    "outbox_duplicates_skipped_total": {"queue", "exchange_name"},
    "outbox_messages_in_flight": {"queue", "exchange_name"},
    "outbox_handler_timeouts_total": {"queue", "exchange_name"},
}


async def test_metrics_have_the_names_and_labels_that_dashboards_know(workshop: Workshop) -> None:
    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def handler(body: Any) -> None:
        if body == "fails":
            raise ValueError
        if body == "rejected":
            raise Reject

    running = await workshop.working(handler, dlq_interval=0.05)
    for body in ("works", "works", "fails", "rejected"):
        await workshop.publish("a", body)
    queue = handler.queue
    await workshop.until(
        lambda: REGISTRY.get_sample_value("outbox_dlq_messages", {"queue": queue}) == 2,
        "both dead letters to be measured",
    )
    assert workshop.metric("outbox_messages_received_total", queue) == 5
    processed = {
        status: workshop.metric("outbox_messages_processed_total", queue, status=status)
        for status in ("success", "failed", "rejected")
    }
    assert processed == {"success": 2, "failed": 2, "rejected": 1}
    retries = {"queue": queue, "delay_seconds": "0.05"}
    assert REGISTRY.get_sample_value("outbox_retry_attempts_total", retries) == 1
    assert workshop.metric("outbox_message_processing_duration_seconds_count", queue) == 5
    assert workshop.metric("outbox_active_consumers", queue) == 1
    samples = {
        sample.name: set(sample.labels)
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.labels.get("queue") == queue
    }
    assert {name: samples[name] for name in (*ORIGINAL, *ADDED)} == {**ORIGINAL, **ADDED}
    await running.stop()
    assert workshop.metric("outbox_active_consumers", queue) == 0


async def test_without_metrics_nothing_is_exposed(workshop: Workshop) -> None:
    seen: list[Any] = []

    @listen("a", queue=workshop.queue(), retry_delays=())
    async def handler(body: Any) -> None:
        seen.append(body)

    await workshop.working(handler, enable_metrics=False)
    await workshop.publish("a", 1)
    await workshop.until(lambda: seen == [1], "the call")
    assert handler.queue not in generate_latest(REGISTRY).decode()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A provider of this test, as an application sets one."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # `set_tracer_provider` takes one provider for the life of the process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


async def test_a_span_continues_the_emitters_trace_and_records_errors(
    workshop: Workshop, spans: InMemorySpanExporter
) -> None:
    inside: list[Any] = []

    @listen("a", queue=workshop.queue(), retry_delays=())
    async def handler(body: Any) -> None:
        inside.append(trace.get_current_span().get_span_context())
        if body == "fails":
            raise ValueError("broken")

    await workshop.working(handler)
    tracer = trace.get_tracer("shop")
    with tracer.start_as_current_span("request") as request:
        headers = trace_headers()
    works = await workshop.publish("a", "works", headers=headers)
    await workshop.publish("a", "fails", headers=headers)
    await workshop.publish("a", "alone")
    await workshop.dead_letter(handler.queue)

    def consumed() -> list[ReadableSpan]:
        return [span for span in spans.get_finished_spans() if span.kind is SpanKind.CONSUMER]

    await workshop.until(lambda: len(consumed()) == 3, "three spans")
    by_status = {span.status.status_code: span for span in consumed() if span.parent is not None}
    good, bad = by_status[StatusCode.UNSET], by_status[StatusCode.ERROR]
    for span in (good, bad):
        assert span.name == f"process {handler.queue}"
        assert span.parent is not None
        assert span.parent.span_id == request.get_span_context().span_id
        assert span.get_span_context() in inside
    assert good.attributes is not None
    assert good.attributes["messaging.message.id"] == works
    assert [event.name for event in bad.events] == ["exception"]
    [alone] = [span for span in consumed() if span.parent is None]
    assert alone.context is not None
    assert alone.context.trace_id != request.get_span_context().trace_id


async def test_a_listener_that_holds_up_the_loop_is_named_with_the_place(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[Any] = []

    @listen("a", queue=workshop.queue())
    async def blocks(body: Any) -> None:
        time.sleep(1.7)  # noqa: ASYNC251 - that is the point
        done.append(body)

    with caplog.at_level(logging.WARNING, "outbox"):
        await workshop.working(blocks)
        await workshop.publish("a", 1)
        await workshop.until(lambda: done == [1], "the listener to end")
    [warning] = [each for each in caplog.messages if "has not turned" in each]
    assert f"the listener of queue {blocks.queue} is at {__file__}:" in warning
    line = re.search(rf"{re.escape(__file__)}:(\d+) in blocks", warning)
    assert line is not None
    assert int(line[1]) == blocks.callback.__code__.co_firstlineno + 2
