"""Policies of RabbitMQ that make our queues and exchanges lose, delay or misroute messages. Pure.

A policy changes a queue after it was declared, and its arguments still look right. For a quorum queue,
RabbitMQ takes the lower of policy and argument for limits and times, the policy's `overflow` before the
argument's, and the argument's dead-letter settings before the policy's. Policy and operator policy are merged
first.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from outbox.topology import Queue, Topology
from outbox_operator.broker.snapshot import ObservedPolicy, Snapshot

_QUEUES = frozenset({"all", "queues", "quorum_queues"})
_EXCHANGES = frozenset({"all", "exchanges"})
_REJECT = "reject-publish"
_LONGEST_PATTERN = 1024
_MOST_PATTERNS = 4096
_LEADING = re.compile(r"^\^?\.\*(?![?+{])")
_TRAILING = re.compile(r"(?<!\\)\.\*\$?$")
_REPEATS = re.compile(r"(?<!\\)[*+{]")
_REPEATED_GROUP = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
"""What takes more than a time that grows with the square of a name's length."""
_LENGTHS = {"max-length": "messages", "max-length-bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy sets for an object."""

    value: Any
    """The value that is in effect."""
    policy: ObservedPolicy
    """The policy that it comes from."""


@dataclass(frozen=True, slots=True)
class PolicyConflict:
    """A setting of a policy that breaks a queue or an exchange of ours."""

    kind: Literal["queue", "exchange"]
    """What it breaks."""
    name: str
    """Its name."""
    key: str
    """The key in the policy's definition."""
    setting: Setting
    """Its value, and the policy."""
    harm: str
    """What it does to messages, as the end of a sentence about the object."""

    @property
    def difference(self) -> str:
        """What is wrong, as the end of a sentence about the object."""
        policy = self.setting.policy
        return f'has {self.key}={self.setting.value} by {policy.title} "{policy.name}", which {self.harm}'

    @property
    def cure(self) -> str:
        """What a person may do."""
        policy = self.setting.policy
        return f"remove {self.key} from the {policy.title}, or change its pattern {policy.pattern!r}"


def policy_conflicts(desired: Topology, snapshot: Snapshot) -> Iterator[PolicyConflict]:
    """Everything that policies do to the objects of `desired` and must not, also to those not made yet."""
    for exchange in desired.exchanges:
        found = exchange_settings(exchange.name, snapshot).get("alternate-exchange")
        if found is not None:
            harm = "takes messages that no queue is bound for, so that nobody hears that they are unroutable"
            yield PolicyConflict("exchange", exchange.name, "alternate-exchange", found, harm)
    for queue in desired.queues:
        settings = queue_settings(queue.name, snapshot)
        for key, harm in _harms(queue, {key: setting.value for key, setting in settings.items()}):
            yield PolicyConflict("queue", queue.name, key, settings[key], harm)


def queue_settings(name: str, snapshot: Snapshot) -> Mapping[str, Setting]:
    """What the policies of a virtual host set for a quorum queue, whether it exists or not."""
    found = snapshot.queues.get(name)
    users = _named(found.policy, snapshot.policies) if found else _matching(name, _QUEUES, snapshot.policies)
    return _merged(users, _matching(name, _QUEUES, snapshot.operator_policies))


def exchange_settings(name: str, snapshot: Snapshot) -> Mapping[str, Setting]:
    """What the policies of a virtual host set for an exchange; operator policies are for queues only."""
    found = snapshot.exchanges.get(name)
    users = (
        _named(found.policy, snapshot.policies) if found else _matching(name, _EXCHANGES, snapshot.policies)
    )
    return _merged(users, None)


def matching_policy(name: str, kind: Literal["queue", "exchange"], snapshot: Snapshot) -> str | None:
    """The name of the policy that an object gets when it is made."""
    found = _matching(name, _QUEUES if kind == "queue" else _EXCHANGES, snapshot.policies)
    return found.name if found else None


def _harms(queue: Queue, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys that break `queue`, each with what it does to messages."""
    arguments = queue.arguments
    is_lossless = arguments.get("x-overflow") == _REJECT
    if "expires" in settings:
        yield "expires", f"deletes it with its messages when it was not used for {settings['expires']} ms"
    if harm := _ttl_harm(arguments, settings.get("message-ttl")):
        yield "message-ttl", harm
    if is_lossless and settings.get("overflow", _REJECT) != _REJECT:
        yield "overflow", "wins over its argument: it drops messages when it is full, and loses dead letters"
    if not is_lossless and settings.get("overflow") != _REJECT:
        for key, unit in _LENGTHS.items():
            if key in settings:
                yield key, f"drops its oldest dead letters beyond {settings[key]} {unit}"
    if harm := _delivery_harm(arguments, settings.get("delivery-limit")):
        yield "delivery-limit", harm
    is_by_own_key = "x-dead-letter-exchange" in arguments and "x-dead-letter-routing-key" not in arguments
    if is_by_own_key and "dead-letter-routing-key" in settings:
        yield "dead-letter-routing-key", "sends its retries to another queue than the one they came from"


def _ttl_harm(arguments: Mapping[str, Any], ttl: Any) -> str | None:
    if not _is_number(ttl):
        return None
    wanted = arguments.get("x-message-ttl")
    if wanted is not None:
        return f"ends the delay of retries, which is {wanted} ms" if ttl < wanted else None
    if "x-dead-letter-exchange" in arguments:
        return f"dead-letters messages that no worker has taken for {ttl} ms"
    return f"removes dead letters after {ttl} ms"


def _delivery_harm(arguments: Mapping[str, Any], limit: Any) -> str | None:
    wanted = arguments.get("x-delivery-limit")
    # Less than 0 is no limit, and then the argument's is in effect.
    if wanted is None or not _is_number(limit) or not 0 <= limit < wanted:
        return None
    if "x-dead-letter-exchange" in arguments:
        return f"dead-letters messages after fewer deliveries than the {wanted} that are wanted"
    return f"drops dead letters that were looked at {limit} times"


def _merged(users: ObservedPolicy | None, operators: ObservedPolicy | None) -> dict[str, Setting]:
    """What is in effect of both: of two numbers the lower, otherwise the operator policy's value."""
    merged = {key: Setting(value, users) for key, value in users.definition.items()} if users else {}
    for key, value in operators.definition.items() if operators else ():
        there = merged[key].value if key in merged else None
        is_lower = _is_number(there) and _is_number(value) and there <= value
        if operators and not is_lower:
            merged[key] = Setting(value, operators)
    return merged


def _named(name: str | None, policies: tuple[ObservedPolicy, ...]) -> ObservedPolicy | None:
    return next((policy for policy in policies if policy.name == name), None)


def _matching(
    name: str, kinds: frozenset[str], policies: tuple[ObservedPolicy, ...]
) -> ObservedPolicy | None:
    """The policy of the highest priority that is for objects of this kind and name."""
    matching = (
        policy
        for policy in policies
        if policy.apply_to in kinds and not _is_for_mirrors(policy) and _matches(policy.pattern, name)
    )
    return max(matching, key=lambda policy: policy.priority, default=None)


def _is_for_mirrors(policy: ObservedPolicy) -> bool:
    """Whether RabbitMQ passes over it for quorum queues, as it has a key that they do not support."""
    return any(key.startswith("ha-") for key in policy.definition)


def _matches(pattern: str, name: str) -> bool:
    compiled = _compiled(pattern)
    # A pattern that only Erlang understands may match: better a warning too many than lost messages.
    return compiled is None or compiled.search(name) is not None


@lru_cache(_MOST_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """What tells whether a name matches; None if that is not to be found out in a short time.

    Whoever writes policies could otherwise have one regular expression keep the operator busy for ever.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return None
    # This changes nothing about what is found.
    simpler = _TRAILING.sub("", _LEADING.sub("", pattern))
    if len(_REPEATS.findall(simpler)) > 1 or _REPEATED_GROUP.search(simpler):
        return None
    with warnings.catch_warnings():
        # `[[:alnum:]]` means something else to Python, which warns of it.
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile(simpler)
        except (re.error, FutureWarning, RecursionError, OverflowError):
            return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
