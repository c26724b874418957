"""What the relay counts and measures, under the names that the original library's users know."""

from collections.abc import Iterable
from functools import cache, partial

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_AGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10, 60, 300, 3600, 86400)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class _Collectors:
    """Every metric of the relay in one registry. A registry takes each name once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        by_exchange = ["exchange_name"]
        by_reason = ["exchange_name", "reason"]
        by_error = ["exchange_name", "failure_type", "error_type"]

        self.published = counter(
            "outbox_messages_published", "Messages that the broker confirmed.", by_exchange
        )
        self.failures = counter("outbox_publish_failures", "Failed attempts to publish.", by_error)
        self.age = histogram(
            "outbox_message_age_seconds",
            "How long messages were in the table before they were published.",
            by_exchange,
            buckets=_AGES,
        )
        self.poll = histogram(
            "outbox_poll_duration_seconds",
            "How long one batch took from its claim to its commit.",
            by_exchange,
            buckets=_FAST,
        )
        self.backlog = gauge(
            "outbox_table_backlog", "Messages that are due; beyond 10,000 an estimate.", by_exchange
        )
        self.oldest = gauge(
            "outbox_table_oldest_seconds", "How long the oldest message has been due.", by_exchange
        )
        self.parked_rows = gauge(
            "outbox_table_parked", "Parked messages in the table, counted up to 10,000.", by_exchange
        )
        self.dead_rows = gauge(
            "outbox_table_dead_rows",
            "Dead rows of the table that vacuum has not removed, as Postgres estimates them.",
            by_exchange,
        )
        self.vacuum_held = gauge(
            "outbox_vacuum_horizon_held_seconds",
            "How long the same transaction or standby has kept many dead rows from vacuum; 0 if none does.",
            by_exchange,
        )
        self.parked = counter(
            "outbox_messages_parked", "Messages given up and kept for a person to look at.", by_reason
        )
        self.dropped = counter(
            "outbox_messages_dropped", "Messages deleted unsent because nobody had to hear them.", by_reason
        )
        self.batch = histogram(
            "outbox_claimed_batch_size", "Rows in a claimed batch.", by_exchange, buckets=_SIZES
        )
        self.wakes = counter("outbox_wakeups", "Why the relay looked at the table.", by_reason)
        self.confirm = histogram(
            "outbox_confirm_latency_seconds",
            "How long the broker took to confirm a batch.",
            by_exchange,
            buckets=_FAST,
        )
        self.unconfirmed = gauge(
            "outbox_messages_unconfirmed",
            "Messages that were sent and that the broker has not confirmed in time.",
            by_exchange,
        )
        self.routes_closed = gauge(
            "outbox_routes_closed",
            "Routing keys whose messages wait, because a queue refuses or does not confirm them.",
            by_exchange,
        )
        self.blocked = gauge(
            "outbox_broker_blocked",
            "1 while the broker refuses publishers: its memory or disk alarm.",
            by_exchange,
        )


_collectors = cache(_Collectors)


class Metrics:
    """The metrics of one relay."""

    def __init__(self, exchange: str, *, exposed: bool = True) -> None:
        # What is not to be exposed is counted in a registry that nobody reads.
        collectors = _collectors(REGISTRY) if exposed else _Collectors(CollectorRegistry())
        self._exchange = exchange
        self._failures = collectors.failures
        self._parked = collectors.parked
        self._dropped = collectors.dropped
        self._wakes = collectors.wakes
        self._published = collectors.published.labels(exchange)
        self._age = collectors.age.labels(exchange)
        self._poll = collectors.poll.labels(exchange)
        self._backlog = collectors.backlog.labels(exchange)
        self._oldest = collectors.oldest.labels(exchange)
        self._parked_rows = collectors.parked_rows.labels(exchange)
        self._dead_rows = collectors.dead_rows.labels(exchange)
        self._vacuum_held = collectors.vacuum_held.labels(exchange)
        self._batch = collectors.batch.labels(exchange)
        self._confirm = collectors.confirm.labels(exchange)
        self._unconfirmed = collectors.unconfirmed.labels(exchange)
        self._routes_closed = collectors.routes_closed.labels(exchange)
        self._blocked = collectors.blocked.labels(exchange)

    def claimed(self, rows: int) -> None:
        self._batch.observe(rows)

    def confirmed(self, seconds: float) -> None:
        self._confirm.observe(seconds)

    def published(self, ages: Iterable[float]) -> None:
        count = 0
        for count, age in enumerate(ages, start=1):  # noqa: B007 - the count is what is left
            self._age.observe(age)
        self._published.inc(count)

    def failed(self, failure: str, error: str, count: int = 1) -> None:
        self._failures.labels(self._exchange, failure, error).inc(count)

    def parked(self, reason: str) -> None:
        self._parked.labels(self._exchange, reason).inc()

    def dropped(self, reason: str) -> None:
        self._dropped.labels(self._exchange, reason).inc()

    def settled(self, seconds: float) -> None:
        self._poll.observe(seconds)

    def woke(self, reason: str) -> None:
        self._wakes.labels(self._exchange, reason).inc()

    def unconfirmed(self, count: int) -> None:
        self._unconfirmed.set(count)

    def routes_closed(self, count: int) -> None:
        self._routes_closed.set(count)

    def blocked(self, is_blocked: bool) -> None:
        self._blocked.set(is_blocked)

    def backlog(self, due: int, oldest_seconds: float, parked: int) -> None:
        self._backlog.set(due)
        self._oldest.set(oldest_seconds)
        self._parked_rows.set(parked)

    def vacuum(self, dead_rows: int, held_seconds: float) -> None:
        self._dead_rows.set(dead_rows)
        self._vacuum_held.set(held_seconds)
