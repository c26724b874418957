import json

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

from outbox import OutboxMessage
from outbox.message import row_of


def test_the_current_span_travels_in_the_headers() -> None:
    with TracerProvider().get_tracer("shop").start_as_current_span("checkout") as span:
        headers = json.loads(row_of(OutboxMessage("a", 1, headers={"tenant": "x"}), "an-id").headers or "")
    context = span.get_span_context()
    assert headers == {
        "traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}",
        "tenant": "x",
    }


def test_trace_state_is_kept_and_a_header_of_ones_own_wins() -> None:
    context = SpanContext(
        1, 2, is_remote=True, trace_flags=TraceFlags(0), trace_state=TraceState([("v", "1")])
    )
    with use_span(NonRecordingSpan(context)):
        headers = json.loads(
            row_of(OutboxMessage("a", 1, headers={"traceparent": "mine"}), "an-id").headers or ""
        )
    assert headers == {"traceparent": "mine", "tracestate": "v=1"}


def test_without_a_span_there_is_no_header() -> None:
    assert row_of(OutboxMessage("a", 1), "an-id").headers is None
