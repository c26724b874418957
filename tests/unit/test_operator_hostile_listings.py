"""Listings with something odd in each field: refused as foreign, or read as something that can be used."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outbox_operator.broker import listings
from outbox_operator.broker.policies import matching_policy
from outbox_operator.broker.snapshot import Snapshot

_DEEP: Any = []
for _ in range(900):
    _DEEP = [_DEEP]

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**80, float("inf"), 1.5, "", "\ud800", "x" * 100_000, [], [None], {}, {"a": []},
    {"a": _DEEP}, _DEEP, [{"name": 1}],
)  # fmt: skip

EXCHANGE = {"name": "outbox", "type": "topic", "durable": True, "internal": False, "auto_delete": False,
            "arguments": {}, "policy": "p"}  # fmt: skip
QUEUE = {
    "name": "mail",
    "arguments": {"x-queue-type": "quorum"},
    "durable": True,
    "messages": 1,
    "policy": "",
}
BINDING = {"source": "outbox", "destination": "mail", "destination_type": "queue", "routing_key": "a",
           "arguments": {"outbox.dev/owner": "shop/mail"}, "properties_key": "a"}  # fmt: skip
POLICY = {
    "name": "p",
    "pattern": "^mail$",
    "apply-to": "queues",
    "priority": 1,
    "definition": {"max-length": 1},
}
USER: dict[str, Any] = {"name": "shop", "password_hash": "x", "hashing_algorithm": "y"}
PERMISSION = {"user": "shop", "configure": "", "write": "", "read": ""}

_Parse = Callable[[Any], object]

PARSERS: tuple[tuple[_Parse, dict[str, Any]], ...] = (
    (listings.parse_exchanges, EXCHANGE),
    (listings.parse_queues, QUEUE),
    (
        lambda listed: listings.installations_of(listings.parse_bindings(listed)),
        {**BINDING, "arguments": {"outbox.dev/installation": "here"}},
    ),
    (listings.parse_bindings, BINDING),
    (listings.parse_bound_queues, {**BINDING, "source": ""}),
    (listings.parse_policies, POLICY),
    (lambda listed: listings.parse_users(listed, []), USER),
    (lambda listed: listings.parse_users([USER], listed), PERMISSION),
)


def odd_listings(entry: dict[str, Any]) -> Iterator[Any]:
    yield from (odd for odd in ODD if not isinstance(odd, str) or not odd)
    for odd in ODD:
        yield [odd]
        for field in entry:
            yield [{**entry, field: odd}]
            yield [entry, {**entry, field: odd}]
    for field in entry:
        yield [{name: value for name, value in entry.items() if name != field}]


@pytest.mark.parametrize("number", range(len(PARSERS)))
def test_a_listing_with_something_odd_is_refused_or_can_be_used(number: int) -> None:
    parse, entry = PARSERS[number]
    assert parse([entry])
    for listed in odd_listings(entry):
        try:
            found = parse(listed)
        except (KeyError, TypeError, AttributeError):
            continue
        # As a snapshot is compared, and as a message may quote it.
        assert found == parse(listed)
        assert repr(found)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "a*a*a*a*a*b", "(a*)*b", r"(a+)\1+$", "(" * 5000])
def test_a_pattern_that_could_take_for_ever_is_taken_to_match(pattern: str) -> None:
    policies = listings.parse_policies([{**POLICY, "pattern": pattern}])
    snapshot = Snapshot({}, {}, {}, None, policies=policies)
    assert matching_policy("a" * 255, "queue", snapshot) == "p"


@pytest.mark.parametrize(
    ("pattern", "is_matching"),
    [("^.*mail.*$", True), (".*", True), ("^mail.*", True), ("^xmail", False), (r"mail\.*$", True)],
)
def test_ordinary_patterns_are_compared(pattern: str, is_matching: bool) -> None:
    policies = listings.parse_policies([{**POLICY, "pattern": pattern}])
    snapshot = Snapshot({}, {}, {}, None, policies=policies)
    assert (matching_policy("mail", "queue", snapshot) == "p") is is_matching
