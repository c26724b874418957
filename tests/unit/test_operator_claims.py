from datetime import UTC, datetime, timedelta

from outbox_operator.broker.access import VhostId
from outbox_operator.planning.claims import Claim, Claims
from outbox_operator.resources import OutboxListener

HERE, THERE = VhostId("rabbit:15672", "shop"), VhostId("rabbit:15672", "other")
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def claim(path: str, queue: str | None = None, *, minutes: float = 0, vhost: VhostId = HERE) -> Claim:
    namespace, name = path.split("/")
    listener = OutboxListener.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": NOON + timedelta(minutes=minutes),
            },
            "spec": {
                "relayRef": {"name": "shop"},
                "bindingKeys": ["a"],
                **({"queue": queue} if queue else {}),
            },
        }
    )
    return Claim(listener, vhost)


def obstacle(of: Claim, *others: Claim) -> tuple[str, str] | None:
    """The queue in the way and who has it, whichever order they are heard of in."""
    found = {
        Claims(order).obstacle(of) and _named(Claims(order), of) for order in ([of, *others], [*others, of])
    }
    [only] = found
    return only


def _named(claims: Claims, of: Claim) -> tuple[str, str]:
    found = claims.obstacle(of)
    assert found is not None
    return found[0], found[1].metadata.path


def test_a_queue_that_nobody_else_asks_for_is_ones_own() -> None:
    assert obstacle(claim("shop/mail"), claim("shop/bill")) is None


def test_the_older_listener_has_the_queue() -> None:
    older, younger = claim("z/z", "mails"), claim("a/a", "mails", minutes=1)
    assert obstacle(older, younger) is None
    assert obstacle(younger, older) == ("mails", "z/z")


def test_of_two_of_the_same_second_the_name_decides() -> None:
    first, second = claim("shop/a", "mails"), claim("shop/b", "mails")
    assert obstacle(first, second) is None
    assert obstacle(second, first) == ("mails", "shop/a")


def test_the_same_name_on_another_virtual_host_is_another_queue() -> None:
    assert obstacle(claim("shop/b", "mails"), claim("shop/a", "mails", vhost=THERE)) is None


def test_a_queue_must_not_be_the_dead_letter_queue_of_another() -> None:
    mails, letters = claim("shop/a", "mails"), claim("shop/b", "mails.dlq", minutes=1)
    assert obstacle(letters, mails) == ("mails.dlq", "shop/a")
    older = claim("shop/b", "mails.dlq", minutes=-1)
    assert obstacle(mails, older) == ("mails.dlq", "shop/b")


def test_one_that_is_being_deleted_has_its_queue_until_it_is_gone() -> None:
    older, younger = claim("shop/a", "mails"), claim("shop/b", "mails", minutes=1)
    metadata = older.listener.metadata.model_copy(update={"deletion_timestamp": NOON})
    leaving = Claim(older.listener.model_copy(update={"metadata": metadata}), HERE)
    assert obstacle(younger, leaving) == ("mails", "shop/a")


def test_without_a_time_a_listener_is_from_long_ago() -> None:
    metadata = claim("shop/z", "mails").listener.metadata.model_copy(update={"creation_timestamp": None})
    undated = Claim(claim("shop/z", "mails").listener.model_copy(update={"metadata": metadata}), HERE)
    assert obstacle(claim("shop/a", "mails"), undated) == ("mails", "shop/z")


def test_rivals_are_all_others_that_ask_for_one_of_the_queues() -> None:
    one, two, letters = claim("shop/a", "mails"), claim("shop/b", "mails"), claim("shop/c", "mails.dlq")
    other = claim("shop/d", "bills")
    found = Claims([one, two, letters, other]).rivals(one)
    assert {each.metadata.name for each in found} == {"b", "c"}
