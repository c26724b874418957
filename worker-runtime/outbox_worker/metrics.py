"""What the worker counts and measures, under the names that the original library's users know."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class _Collectors:
    """Every metric of the worker in one registry. A registry takes each name once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        by_queue = ["queue", "exchange_name"]

        self.received = counter("outbox_messages_received", "Messages received from the queue.", by_queue)
        self.processed = counter(
            "outbox_messages_processed",
            "Attempts by their outcome: success, failed (retried or dead-lettered), rejected.",
            [*by_queue, "status"],
        )
        self.retries = counter(
            "outbox_retry_attempts", "Retries by the delay before them.", ["queue", "delay_seconds"]
        )
        self.duration = Histogram(
            "outbox_message_processing_duration_seconds",
            "How long listeners took.",
            by_queue,
            buckets=_DURATIONS,
            registry=registry,
        )
        self.dead_letters = gauge("outbox_dlq_messages", "Messages in the dead-letter queue.", ["queue"])
        self.consumers = gauge("outbox_active_consumers", "Consumers that the broker delivers to.", by_queue)
        self.duplicates = counter(
            "outbox_duplicates_skipped", "Messages that had been handled before.", by_queue
        )
        self.in_flight = gauge("outbox_messages_in_flight", "Messages received and not settled.", by_queue)
        self.timeouts = counter(
            "outbox_handler_timeouts", "Calls that took longer than handler_timeout.", by_queue
        )


_collectors = cache(_Collectors)


class Metrics:
    """The metrics of one listener."""

    def __init__(self, exchange: str, queue: str, *, exposed: bool = True) -> None:
        # What is not to be exposed is counted in a registry that nobody reads.
        collectors = _collectors(REGISTRY) if exposed else _Collectors(CollectorRegistry())
        self._queue = queue
        self._retries = collectors.retries
        self._dead_letters = collectors.dead_letters.labels(queue)
        self._consumers = collectors.consumers.labels(queue, exchange)
        self._in_flight = collectors.in_flight.labels(queue, exchange)
        self._failed = collectors.processed.labels(queue, exchange, "failed")
        self._rejected = collectors.processed.labels(queue, exchange, "rejected")
        self.received = collectors.received.labels(queue, exchange).inc
        """Bound once, as the following are: they are called for every message."""
        self.succeeded = collectors.processed.labels(queue, exchange, "success").inc
        self.took = collectors.duration.labels(queue, exchange).observe
        self.duplicate = collectors.duplicates.labels(queue, exchange).inc
        self.timed_out = collectors.timeouts.labels(queue, exchange).inc

    def retried(self, delay: timedelta) -> None:
        self._failed.inc()
        self._retries.labels(self._queue, f"{delay.total_seconds():g}").inc()

    def dead_lettered(self, *, rejected: bool) -> None:
        (self._rejected if rejected else self._failed).inc()

    def consuming(self, is_consuming: bool) -> None:
        self._consumers.set(is_consuming)

    def dead_letters(self, count: int) -> None:
        self._dead_letters.set(count)

    def in_flight(self, count: Callable[[], float]) -> None:
        """Ask this when somebody looks, which costs a message nothing."""
        self._in_flight.set_function(count)
