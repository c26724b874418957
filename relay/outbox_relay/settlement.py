"""What becomes of a claimed row, decided from what the broker said. Nothing here talks to anybody."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, assert_never

from outbox_core.backoff import Backoff
from outbox_core.masking import mask
from outbox_core.printable import printable
from outbox_core.publisher import Confirmed, Nacked, Outcome, Returned, Unencodable
from outbox_relay.queries import Key

_LONGEST_ERROR = 2000

Reason: TypeAlias = Literal["unroutable", "nacked", "unconfirmed", "malformed", "expired"]


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker has it."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """It stays, and is tried again later."""

    reason: Reason
    delay_seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class Park:
    """It is given up, and stays for a person to look at."""

    reason: Reason
    error: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Nobody has to hear it any more."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Defer:
    """It was not tried, and is looked at again later."""

    delay_seconds: float
    error: str
    """What it waits for."""


@dataclass(frozen=True, slots=True)
class Leave:
    """It was not tried, and stays as it is."""


Verdict: TypeAlias = Sent | BackOff | Park | Drop | Defer | Leave


@dataclass(frozen=True, slots=True)
class Policy:
    """The user's choices about messages that cannot be published."""

    backoff: Backoff = field(default_factory=Backoff)
    """How long to wait between attempts."""
    max_attempts: int | None = 100
    """After how many failed attempts a message is parked; None for never."""
    unroutable: Literal["park", "drop"] = "park"
    """What becomes of a message that no queue is bound for."""
    unroutable_grace_seconds: float = 60.0
    """How long such a message is tried again, since a listener may be about to appear."""
    expired: Literal["drop", "park"] = "drop"
    """What becomes of a message whose expiration ended before it could be sent."""


def judge(outcome: Outcome, attempts: int, policy: Policy) -> Verdict:
    """What becomes of a row with so many failed attempts before this one."""
    failures = attempts + 1
    match outcome:
        case Confirmed():
            return Sent()
        case Unencodable(reason):
            return Park("malformed", reason)
        case Returned(code, text):
            return _unroutable(f"unroutable: {code} {text}", failures, policy)
        case Nacked():
            error = "nacked by the broker: a queue is full or not available"
            return _try_again("nacked", error, failures, policy)
        case _:
            assert_never(outcome)


def judge_unconfirmed(attempts: int, policy: Policy, lease_seconds: float) -> Verdict:
    """What becomes of a row whose message was sent and not confirmed: it is not sent again for this long."""
    error = "not confirmed by the broker: a queue of this routing key does not answer"
    verdict = _try_again("unconfirmed", error, attempts + 1, policy)
    return replace(verdict, delay_seconds=lease_seconds) if isinstance(verdict, BackOff) else verdict


def judge_expired(policy: Policy) -> Verdict:
    """What becomes of a row whose expiration ended before it could be sent."""
    if policy.expired == "drop":
        return Drop("expired")
    return Park("expired", "its expiration ended before it could be sent")


def _unroutable(error: str, failures: int, policy: Policy) -> Verdict:
    if policy.backoff.waited(failures) < policy.unroutable_grace_seconds:
        return _try_again("unroutable", error, failures, policy)
    return Drop("unroutable") if policy.unroutable == "drop" else Park("unroutable", error)


def _try_again(reason: Reason, error: str, failures: int, policy: Policy) -> Verdict:
    if policy.max_attempts is not None and failures >= policy.max_attempts:
        return Park(reason, f"{error} (attempt {failures} of {policy.max_attempts})")
    return BackOff(reason, policy.backoff.delay(failures), error)


@dataclass(slots=True)
class Settlement:
    """The verdicts on a batch, as the parameters of the statements that carry them out."""

    sent: list[Key] = field(default_factory=list)
    """Rows to delete or to mark as sent."""
    dropped: list[Key] = field(default_factory=list)
    """Rows to delete."""
    delayed: list[tuple[int, int, float, str, int]] = field(default_factory=list)
    """Partition, id, seconds and error of what is tried again, and 1 if this was an attempt."""
    parked: list[tuple[int, int, str]] = field(default_factory=list)
    """Partition, id and error of what is given up."""

    @classmethod
    def of(cls, keys: Sequence[Key], verdicts: Sequence[Verdict]) -> "Settlement":
        settlement = cls()
        for key, verdict in zip(keys, verdicts, strict=True):
            match verdict:
                case Sent():
                    settlement.sent.append(key)
                case Drop():
                    settlement.dropped.append(key)
                case BackOff(_, delay, error):
                    settlement.delayed.append((*key, delay, _stored(error), 1))
                case Defer(delay, error):
                    settlement.delayed.append((*key, delay, _stored(error), 0))
                case Park(_, error):
                    settlement.parked.append((*key, _stored(error)))
                case Leave():
                    pass
                case _:
                    assert_never(verdict)
        return settlement


def _stored(error: str) -> str:
    """The error as it is kept with the row."""
    return printable(mask(error, _LONGEST_ERROR))
