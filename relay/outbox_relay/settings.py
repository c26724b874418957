"""Everything about a relay that a user can choose, with its default, and how the environment spells it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from outbox.message import expiration_seconds
from outbox.schema import DEFAULT_CHANNEL, NOTIFY_HORIZON
from outbox.table import DEFAULT_TABLE, TableName
from outbox.topology import Exchange, Topology
from outbox_core.backoff import Backoff
from outbox_core.environment import SettingError, settings_of
from outbox_relay.settlement import Policy

IMMEDIATELY: Literal["immediately"] = "immediately"
"""Delete a message as soon as it was sent."""
NEVER: Literal["never"] = "never"
"""Keep messages that were sent, and leave their removal to somebody else."""
CleanUp: TypeAlias = Literal["immediately", "never"] | timedelta
GivenCleanUp: TypeAlias = CleanUp | Literal["IMMEDIATELY", "NEVER"] | float | None
"""The ways in which the original library's users write it: a number is seconds, None is never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a relay."""

    exchange_name: str = "outbox"
    """The topic exchange that messages are published to."""
    table_name: str = DEFAULT_TABLE
    """The outbox table."""
    channel: str = DEFAULT_CHANNEL
    """The channel on which the table's triggers notify."""
    notify: Literal["if_asleep", "never"] = "if_asleep"
    """Whether the table has triggers that notify while a relay sleeps; never is for a database where NOTIFY
    is not wanted, and implies that `listen` is false."""
    auto_create_table: bool = False
    """Create the table where it is missing, instead of refusing to start."""
    provisioned: bool = False
    """Somebody else declares the exchange: only check that it is there."""
    batch_size: int = 500
    """How many messages are claimed and published at a time."""
    lanes: int = 2
    """How many batches are under way at the same time, each on a connection of its own."""
    notification_timeout: float = 60
    """How many seconds may pass without a look at the table when nothing is due."""
    poll_interval: float = 1
    """How many seconds may pass without a look where no notifications arrive; less while messages flow."""
    listen: bool = True
    """Use LISTEN/NOTIFY; otherwise only look every `poll_interval`."""
    publish_timeout: float = 30
    """How many seconds rows stay locked while their batch is published, and a statement may take."""
    expiration: float | None = None
    """How many seconds a message without an expiration of its own may wait for a listener."""
    expired: Literal["drop", "park"] = "drop"
    """What becomes of a message whose expiration ended before it could be sent."""
    unroutable: Literal["park", "drop"] = "park"
    """What becomes of a message that no queue is bound for, after `unroutable_grace`."""
    unroutable_grace: float = 60
    """How many seconds such a message is tried again, since a listener may be about to appear."""
    max_attempts: int | None = 100
    """After how many failed attempts a message is parked; None for never."""
    backoff_initial: float = 0.5
    """How many seconds a message waits after its first failure; the wait doubles with each."""
    backoff_maximum: float = 60
    """How many seconds it waits at most."""
    clean_up_after: CleanUp = IMMEDIATELY
    """How long a message is kept after it was sent."""
    parked_retention: timedelta | None = None
    """How long a message is kept after it was parked; None for ever."""
    shutdown_timeout: float = 30
    """How many seconds a batch under way may take to finish when the relay is asked to stop."""
    enable_metrics: bool = True
    """Count and measure for Prometheus."""
    max_message_size: int = 128 * 1024 * 1024
    """The largest body that the broker takes, in bytes; a larger one is parked without being sent."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clean_up_after", _clean_up(self.clean_up_after))
        TableName.parse(self.table_name)
        expiration_seconds(self.expiration)
        for name in ("batch_size", "lanes"):
            self._require(getattr(self, name) >= 1, name, "at least 1")
        for name in ("notification_timeout", "poll_interval", "publish_timeout"):
            self._require(getattr(self, name) > 0, name, "more than 0 seconds")
        horizon = NOTIFY_HORIZON.total_seconds() / 2
        # A timer set further ahead than the horizon does not notify: it has to be found in time.
        self._require(
            self.notification_timeout <= horizon, "notification_timeout", f"at most {horizon:g} seconds"
        )
        self._require(
            self.max_attempts is None or self.max_attempts >= 1, "max_attempts", "at least 1, or None"
        )
        for name in ("shutdown_timeout", "unroutable_grace"):
            self._require(getattr(self, name) >= 0, name, "0 or more seconds")
        for name in ("clean_up_after", "parked_retention"):
            kept = getattr(self, name)
            self._require(not isinstance(kept, timedelta) or kept >= timedelta(), name, "0 or more seconds")
        _ = self.policy

    def _require(self, condition: bool, name: str, bounds: str) -> None:
        if not condition:
            raise SettingError(f"{name} must be {bounds}, got {getattr(self, name)!r}")

    @property
    def notifies(self) -> bool:
        """Whether the table has triggers."""
        return self.notify != "never"

    @property
    def policy(self) -> Policy:
        """The choices about messages that cannot be published."""
        return Policy(
            backoff=Backoff(self.backoff_initial, self.backoff_maximum),
            max_attempts=self.max_attempts,
            unroutable=self.unroutable,
            unroutable_grace_seconds=self.unroutable_grace,
            expired=self.expired,
        )

    @property
    def topology(self) -> Topology:
        """What a relay needs on the broker: the queues are the business of those who listen."""
        return Topology(exchanges=(Exchange(self.exchange_name, "topic"),), queues=(), bindings=())


def _clean_up(given: GivenCleanUp) -> CleanUp:
    match given:
        case None:
            return NEVER
        case "immediately" | "IMMEDIATELY":
            return IMMEDIATELY
        case "never" | "NEVER":
            return NEVER
        case timedelta():
            return given
        case int() | float() if not isinstance(given, bool):
            return timedelta(seconds=given)
        case _:
            raise SettingError(
                f"clean_up_after must be IMMEDIATELY, NEVER, a timedelta or seconds, got {given!r}"
            )


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `OUTBOX_…` variables give: each has the name of its field, in capitals."""
    return settings_of(Settings, environment)
