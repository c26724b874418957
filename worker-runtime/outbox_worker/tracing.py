"""A span of OpenTelemetry around each call, where the application uses OpenTelemetry."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

from outbox.arguments import Delivery
from outbox_worker.call import Around

_NO_PROVIDERS = ("ProxyTracerProvider", "NoOpTracerProvider", "_DefaultTracerProvider")
"""What the API has in place of a provider as long as the application has set none."""


def tracing() -> Around | None:
    """What continues the emitter's trace around a call, or None where nobody would see it.

    A provider can only be set when the application has loaded OpenTelemetry, so nothing is imported for it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or type(trace.get_tracer_provider()).__name__ in _NO_PROVIDERS:
        return None
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = trace.get_tracer("outbox.worker")
    propagator = TraceContextTextMapPropagator()

    async def traced(call: Callable[[], Awaitable[Any]], delivery: Delivery) -> Any:
        with tracer.start_as_current_span(
            f"process {delivery.queue_name}",
            context=propagator.extract(_carrier(delivery)),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(delivery),
        ):
            return await call()

    return traced


def _carrier(delivery: Delivery) -> dict[str, str]:
    return {
        name: value
        for name in ("traceparent", "tracestate")
        if isinstance(value := delivery.headers.get(name), str)
    }


def _attributes(delivery: Delivery) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "rabbitmq",
        "messaging.operation.type": "process",
        "messaging.destination.name": delivery.queue_name,
        "messaging.rabbitmq.destination.routing_key": delivery.routing_key,
        "outbox.attempt": delivery.attempt_count,
    }
    if delivery.message_id is not None:
        attributes["messaging.message.id"] = delivery.message_id
    return attributes
