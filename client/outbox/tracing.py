"""The W3C trace context of the current OpenTelemetry span, where the application uses OpenTelemetry."""

import sys
from typing import Any


def trace_headers() -> dict[str, Any]:
    """`traceparent`, and `tracestate` where it is not empty; nothing outside of a span.

    A span can only be current when the application has loaded OpenTelemetry, so nothing is imported for it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    headers: dict[str, Any] = {
        "traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    }
    if span.trace_state:
        headers["tracestate"] = span.trace_state.to_header()
    return headers
