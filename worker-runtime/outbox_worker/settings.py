"""Everything about a worker that a user can choose, with its default, and how the environment spells it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from outbox.retry import RetryPolicy, policy_of
from outbox.table import TableName
from outbox.topology import DELIVERY_LIMIT, check_exchange
from outbox_core.environment import SettingError, settings_of, variable_of
from outbox_worker.inbox import DEFAULT_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a worker."""

    exchange_name: str = "outbox"
    """The topic exchange that the listeners' queues are bound to."""
    retry_delays: RetryPolicy | tuple[float, ...] = (1, 10, 60, 300)
    """The retries of listeners that name none: seconds before each, or a policy. In the environment they are
    written with commas, as 1,10,60; an empty text is no retries."""
    prefetch_count: int = 10
    """How many messages a listener handles at the same time; an ordered one handles one."""
    enable_metrics: bool = True
    """Count and measure for Prometheus."""
    provisioned: bool = False
    """Somebody else declares exchanges and queues: only check that they are there."""
    handler_timeout: float | None = 1500
    """How many seconds a listener may take; None for ever. It should be less than `consumer_timeout`. For a
    function that is not async the time begins when a thread calls it."""
    consumer_timeout: float | None = 1800
    """How many seconds the broker lets a message be unanswered before it closes the channel: RabbitMQ's
    setting of this name, 30 minutes by default; None if it has none. A message that has to wait is returned
    to its queue and taken again before."""
    delivery_limit: int = DELIVERY_LIMIT
    """How many times the broker has a message back before it dead-letters it. It is for queues that were
    declared with another limit than ours."""
    shutdown_timeout: float = 30
    """How many seconds listeners that run may take to finish when the worker is asked to stop."""
    publish_timeout: float = 30
    """How many seconds the broker may take to confirm a retry or a dead letter before `/readyz` reports it.
    The worker goes on waiting, and sends it again only if the connection or the channel is lost."""
    dlq_interval: float = 30
    """How many seconds pass between two looks at the depth of dead-letter queues."""
    inbox_table: str = DEFAULT_TABLE
    """The table in which exactly-once and deduplicating listeners note what was handled."""
    inbox_retention: timedelta = timedelta(days=7)
    """How long a message is remembered: a duplicate that comes later is handled again."""
    inbox_connections: int = 10
    """How many connections to the database such listeners may use at the same time, all together."""
    auto_create_table: bool = False
    """Create the inbox where it is missing, instead of refusing to start."""

    def __post_init__(self) -> None:
        if isinstance(self.retry_delays, list):
            object.__setattr__(self, "retry_delays", tuple(self.retry_delays))
        TableName.parse(self.inbox_table)
        check_exchange(self.exchange_name)
        for name in ("prefetch_count", "inbox_connections", "delivery_limit"):
            self._require(getattr(self, name) >= 1, name, "at least 1")
        self._require(self.prefetch_count <= 65535, "prefetch_count", "at most 65535")
        for name in ("publish_timeout", "dlq_interval"):
            self._require(getattr(self, name) > 0, name, "more than 0 seconds")
        for name in ("handler_timeout", "consumer_timeout"):
            seconds = getattr(self, name)
            self._require(seconds is None or seconds > 0, name, "more than 0 seconds, or None")
        self._require(self.shutdown_timeout >= 0, "shutdown_timeout", "0 or more seconds")
        self._require(self.inbox_retention > timedelta(), "inbox_retention", "more than 0 seconds")
        _ = self.policy

    def _require(self, condition: bool, name: str, bounds: str) -> None:
        if not condition:
            raise SettingError(f"{name} must be {bounds}, got {getattr(self, name)!r}")

    @property
    def calls_end_in_time(self) -> bool:
        """Whether a call is given up before the broker closes its channel."""
        if self.consumer_timeout is None:
            return True
        return self.handler_timeout is not None and self.handler_timeout < self.consumer_timeout

    @property
    def policy(self) -> RetryPolicy:
        """The policy of listeners that name none."""
        return policy_of(self.retry_delays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What a container says of the one listener that it runs, over what the code says."""

    queue: str = ""
    """The queue that it consumes; without one the code has the only word."""
    retry_delays: tuple[float, ...] | None = None
    """Seconds before each retry, none at all where it is empty; None leaves them to the code."""
    ordered: bool | None = None
    """Whether it handles messages one at a time, in their order; None leaves that to the code."""


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `OUTBOX_…` variables give: each has the name of its field, in capitals."""
    return settings_of(Settings, environment)


def override_from_environment(environment: Mapping[str, str] = os.environ) -> Override | None:
    """What `OUTBOX_QUEUE`, `OUTBOX_RETRY_DELAYS` and `OUTBOX_ORDERED` say of one listener.

    None without the first: then the delays are those of listeners that name none.
    """
    override = settings_of(Override, environment)
    if not override.queue:
        if override.ordered is not None:
            raise SettingError(
                f"{variable_of('ordered')} is for the listener of one queue; "
                f"set {variable_of('queue')} as well, or write ordered=True in the code"
            )
        return None
    if environment.get(variable_of("retry_delays")) == "":
        # An empty text is None to a field that may be None, and here no retries.
        return replace(override, retry_delays=())
    return override
