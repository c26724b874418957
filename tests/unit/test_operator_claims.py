from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.topology import Binding, dead_letter_queue
from outbox_operator.broker.access import VhostId
from outbox_operator.broker.identity import ClusterIdentity, VhostIdentity
from outbox_operator.broker.snapshot import Mark, ObservedBinding, Snapshot
from outbox_operator.planning.claims import Claim, Hold, Ownership, ownership
from outbox_operator.planning.marks import Domain
from outbox_operator.resources import OutboxListener
from outbox_operator.resources.metadata import Metadata

RABBIT = ClusterIdentity("rabbit@one", "id-1")
HERE = VhostIdentity(VhostId("rabbit:15672", "shop"), RABBIT)
SAME = VhostIdentity(VhostId("rabbit.svc:15672", "shop"), RABBIT)
THERE = VhostIdentity(VhostId("rabbit:15672", "other"), RABBIT)
SILENT = VhostIdentity(VhostId("10.0.0.1:15672", "shop"))
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
DOMAIN = Domain("ours", ("shop", "a", "z"))


def claim(
    path: str,
    queue: str = "mails",
    *,
    minutes: float = 0,
    vhost: VhostIdentity | None = HERE,
    has_record: bool = False,
) -> Claim:
    """A listener that was made so many minutes after noon."""
    names = (queue, dead_letter_queue(queue))
    return Claim(path, names, NOON + timedelta(minutes=minutes), has_record, vhost)


def bound(*marks: str | Mark, queue: str = "mails") -> Snapshot:
    """A broker with a queue that these have bound; a path is a listener of our installation."""
    named = [mark if isinstance(mark, Mark) else Mark(mark, "ours") for mark in marks]
    bindings = tuple(
        ObservedBinding(Binding("outbox", queue, f"of.{each.owner}"), "~", each.owner, each.installation)
        for each in named
    )
    return Snapshot({}, {}, {queue: bindings}, None)


NOTHING = bound()


def owning(of: Claim, others: Sequence[Claim] = (), broker: Snapshot = NOTHING) -> Ownership:
    """Who has the queue, whichever order the claims are known in."""
    found, same = (ownership(of, order, broker, DOMAIN) for order in ([of, *others], [*others[::-1], of]))
    assert found == same
    return found


def obstacle(of: Claim, *others: Claim, broker: Snapshot = NOTHING) -> tuple[str, str, Hold] | None:
    found = owning(of, others, broker).obstacle
    return (found.queue, found.owner, found.hold) if found else None


def owned_by(path: str, queue: str = "mails") -> tuple[str, str, Hold]:
    return queue, path, Hold.OWNED


def claimed_by(path: str, queue: str = "mails") -> tuple[str, str, Hold]:
    return queue, path, Hold.CLAIMED


def test_a_queue_that_nobody_else_asks_for_is_ones_own() -> None:
    assert obstacle(claim("shop/mail", "mails"), claim("shop/bill", "bills")) is None


def test_the_older_listener_has_the_queue() -> None:
    older, younger = claim("z/z"), claim("a/a", minutes=1)
    assert obstacle(older, younger) is None
    assert obstacle(younger, older) == claimed_by("z/z")


def test_of_two_of_the_same_second_the_name_decides() -> None:
    first, second = claim("shop/a"), claim("shop/b")
    assert obstacle(first, second) is None
    assert obstacle(second, first) == claimed_by("shop/a")


def test_without_a_time_a_listener_is_from_long_ago() -> None:
    undated = Claim("shop/z", ("mails", "mails.dlq"), None, has_record=False, vhost=HERE)
    assert obstacle(claim("shop/a"), undated) == claimed_by("shop/z")


def test_whoever_had_the_queue_keeps_it_though_another_is_older() -> None:
    older, holder = claim("shop/a"), claim("shop/b", minutes=1, has_record=True)
    assert obstacle(holder, older) is None
    assert obstacle(older, holder) == claimed_by("shop/b")


def test_a_mark_on_the_broker_is_more_than_a_record() -> None:
    recorded, marked = claim("shop/a", has_record=True), claim("shop/b", minutes=1)
    broker = bound("shop/b")
    assert obstacle(marked, recorded, broker=broker) is None
    assert obstacle(recorded, marked, broker=broker) == owned_by("shop/b")


def test_of_two_that_have_marked_a_queue_the_older_keeps_it() -> None:
    older, younger = claim("shop/a", has_record=True), claim("shop/b", minutes=1, has_record=True)
    broker = bound("shop/a", "shop/b")
    assert obstacle(older, younger, broker=broker) is None
    assert obstacle(younger, older, broker=broker) == owned_by("shop/a")
    assert owning(older, [younger], broker).rivals == {"shop/b"}


def test_the_same_name_on_another_virtual_host_is_another_queue() -> None:
    assert obstacle(claim("shop/b"), claim("shop/a", vhost=THERE, has_record=True)) is None


def test_one_broker_with_two_addresses_has_one_queue_of_a_name() -> None:
    assert obstacle(claim("shop/b", minutes=1), claim("shop/a", vhost=SAME)) == claimed_by("shop/a")


def test_an_owner_whose_mark_is_only_seen_there_has_another_broker_of_that_name() -> None:
    """Two clusters may have one name, and only an administrator sees their ids."""
    namesake = VhostIdentity(VhostId("other:15672", "shop"), ClusterIdentity("rabbit@one"))
    owner = replace(claim("shop/a", vhost=namesake, has_record=True), is_marked=True)
    assert obstacle(claim("shop/b", minutes=1), owner) is None
    assert obstacle(claim("shop/b", minutes=1), replace(owner, is_marked=False)) == claimed_by("shop/a")
    same_address = replace(owner, vhost=HERE)
    assert obstacle(claim("shop/b", minutes=1), same_address) == claimed_by("shop/a")


@pytest.mark.parametrize("unknown", [None, SILENT], ids=["no credentials", "never answered"])
def test_one_that_had_a_queue_on_an_unknown_broker_may_have_it(unknown: VhostIdentity | None) -> None:
    owner = claim("shop/z", vhost=unknown, has_record=True, minutes=5)
    assert obstacle(claim("shop/a"), owner) == ("mails", "shop/z", Hold.POSSIBLE)
    recorded = claim("shop/a", has_record=True)
    assert obstacle(recorded, owner) == ("mails", "shop/z", Hold.POSSIBLE)


def test_one_that_never_had_a_queue_does_not_hold_up_others() -> None:
    assert obstacle(claim("shop/b"), claim("shop/a", vhost=None)) is None


def test_one_that_may_have_a_queue_does_not_take_it_from_one_that_has() -> None:
    owner = claim("shop/a", vhost=None, has_record=True)
    assert obstacle(claim("shop/b", minutes=1), owner, broker=bound("shop/b")) is None


def test_the_mark_of_an_owner_on_an_unknown_broker_shows_that_it_is_here() -> None:
    owner = claim("shop/a", vhost=None, has_record=True)
    broker = bound("shop/a")
    assert obstacle(claim("shop/b"), owner, broker=broker) == owned_by("shop/a")
    both = bound("shop/a", "shop/b")
    assert obstacle(claim("shop/b", minutes=1), owner, broker=both) == owned_by("shop/a")


def test_a_queue_must_not_be_the_dead_letter_queue_of_another() -> None:
    mails, letters = claim("shop/a", "mails"), claim("shop/b", "mails.dlq", minutes=1)
    assert obstacle(letters, mails) == claimed_by("shop/a", "mails.dlq")
    older = claim("shop/b", "mails.dlq", minutes=-1)
    assert obstacle(mails, older) == claimed_by("shop/b", "mails.dlq")


@pytest.mark.parametrize(
    "mark",
    [Mark("shop/other", "theirs"), Mark("elsewhere/mail", "ours"), Mark("elsewhere/mail")],
    ids=["another installation", "a namespace of another operator", "the same, without an installation"],
)
def test_a_queue_of_another_operators_listener_is_left_to_it(mark: Mark) -> None:
    for broker in (bound(mark), bound(mark, "shop/a")):
        assert obstacle(claim("shop/a"), broker=broker) == ("mails", mark.owner, Hold.FOREIGN)


def test_the_same_listener_of_another_installation_is_no_obstacle() -> None:
    found = owning(claim("shop/a"), broker=bound(Mark("shop/a", "theirs")))
    assert found.obstacle is None
    assert [each.installation for each in found.marks.foreign()] == ["theirs"]


@pytest.mark.parametrize("installation", ["ours", ""])
def test_a_mark_of_a_listener_that_is_gone_is_stale(installation: str) -> None:
    broker = bound(Mark("shop/gone", installation), Mark("shop/other", "theirs"), "shop/a", "shop/b")
    found = owning(claim("shop/a"), [claim("shop/b", minutes=1)], broker)
    assert [each.owner for each in found.stale] == ["shop/gone"]


def test_a_mark_of_a_listener_that_asks_for_another_queue_is_stale() -> None:
    found = owning(claim("shop/a"), [claim("shop/b", "bills")], bound("shop/b"))
    assert [each.owner for each in found.stale] == ["shop/b"]
    assert found.obstacle is None


# Resources that cannot be read.


def invalid(**parts: object) -> Claim:
    metadata = Metadata(name="a", namespace="shop", creation_timestamp=NOON)
    return Claim.of_invalid(metadata, dict(parts))


def test_an_invalid_owner_keeps_its_queue() -> None:
    owner = invalid(spec={"queue": "mails", "retryDelays": "?"}, status={"queue": "mails"})
    assert obstacle(claim("shop/b"), owner) == ("mails", "shop/a", Hold.POSSIBLE)
    assert obstacle(claim("shop/b"), owner, broker=bound("shop/a")) == owned_by("shop/a")


@pytest.mark.parametrize("spec", [{"queue": "mails"}, {"queue": 7}, "nothing"])
def test_a_mark_of_an_invalid_listener_is_never_stale(spec: object) -> None:
    assert owning(claim("shop/b"), [invalid(spec=spec)], bound("shop/a")).stale == ()


def test_an_invalid_listener_that_never_had_a_queue_gets_none() -> None:
    assert obstacle(claim("shop/b", minutes=1), invalid(spec={"queue": "mails"})) is None


@pytest.mark.parametrize(
    ("parts", "queue"),
    [
        ({"spec": {"queue": "asked"}, "status": {"queue": "had"}}, "had"),
        ({"spec": {"queue": "asked"}}, "asked"),
        ({"spec": {"queue": 7}}, "shop.a"),
        ({"spec": None, "status": []}, "shop.a"),
        ({}, "shop.a"),
    ],
)
def test_the_queue_of_an_invalid_listener_is_what_can_be_read(parts: dict[str, object], queue: str) -> None:
    assert invalid(**parts).names == (queue, f"{queue}.dlq")


def test_a_claim_is_what_a_resource_says() -> None:
    listener = OutboxListener.model_validate(
        {
            "metadata": {"name": "mail", "namespace": "shop", "creationTimestamp": NOON},
            "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["a"]},
            "status": {"queue": "shop.mail"},
        }
    )
    wanted = Claim("shop/mail", ("shop.mail", "shop.mail.dlq"), NOON, has_record=True, vhost=HERE)
    assert Claim.of(listener, HERE) == wanted


def test_a_mark_on_one_queue_keeps_the_other_of_its_listener() -> None:
    """Its dead-letter queue was removed by hand, and is what the older one calls its queue."""
    marked = replace(claim("shop/a", "mails", minutes=1, has_record=True), is_marked=True)
    older = claim("shop/b", "mails.dlq", has_record=True)
    broker = bound("shop/a", queue="mails")
    assert obstacle(older, marked, broker=broker) == ("mails.dlq", "shop/a", Hold.CLAIMED)
    assert obstacle(marked, older, broker=broker) is None


# Claims of other namespaces, which may be those of somebody else.

NAMESAKE = VhostIdentity(VhostId("evil:15672", "shop"), ClusterIdentity("rabbit@one"))
"""A server of anybody's that calls itself as the broker does."""


def neighbour(**facts: Any) -> Claim:
    """An older listener of another namespace."""
    return replace(claim("a/squatter", minutes=-60), **facts)


@pytest.mark.parametrize(
    "squatter",
    [
        neighbour(is_entered=False),
        neighbour(is_entered=False, has_record=True),
        neighbour(vhost=NAMESAKE),
        neighbour(vhost=NAMESAKE, has_record=True),
        neighbour(vhost=None, has_record=True),
        neighbour(vhost=None, has_record=True, recorded=NAMESAKE.address),
        neighbour(vhost=None, has_record=True, is_valid=False),
        neighbour(vhost=SILENT, has_record=True),
    ],
    ids=str,
)
def test_a_neighbour_that_the_broker_has_not_let_in_holds_no_queue_up(squatter: Claim) -> None:
    assert obstacle(claim("shop/victim"), squatter) is None


def test_a_neighbour_that_the_same_broker_has_let_in_comes_first_if_older() -> None:
    assert obstacle(claim("shop/b"), neighbour()) == ("mails", "a/squatter", Hold.CLAIMED)
    assert obstacle(claim("shop/b"), neighbour(vhost=SAME)) == ("mails", "a/squatter", Hold.CLAIMED)


def test_a_neighbour_that_had_the_queue_here_may_have_it_still() -> None:
    former = neighbour(vhost=None, has_record=True, recorded=HERE.address)
    assert obstacle(claim("shop/b"), former) == ("mails", "a/squatter", Hold.POSSIBLE)


def test_a_neighbours_mark_is_proof_whatever_its_credentials_are_now() -> None:
    squatter, marked = neighbour(is_entered=False), bound("a/squatter")
    assert obstacle(claim("shop/b"), squatter, broker=marked) == ("mails", "a/squatter", Hold.OWNED)
