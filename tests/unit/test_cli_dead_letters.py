"""What dead letters say, which are meant, and what they become."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from outbox import wire
from outbox_cli.dead_letters import Census, DeadLetter, Selection, dead_letter_of, queues_of, redriven
from outbox_core.publisher import Message
from outbox_worker.redelivery import Failure, dead_letter

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGE = Message(
    routing_key="mail",
    body=b"1",
    message_id="m",
    headers={wire.ROUTING_KEY: "user.created", wire.ATTEMPT: 4, wire.DEADLINE: 5, "colour": "red"},
)


def letter(error: Exception | None = None, failed: timedelta = timedelta(hours=1)) -> DeadLetter:
    return dead_letter_of(dead_letter(MESSAGE, "mail", Failure(error or ValueError("no"), 4, NOW - failed)))


def by_the_broker(**headers: object) -> DeadLetter:
    death = {"reason": "delivery_limit", "time": NOW, "routing-keys": ["user.gone"], "queue": "mail"}
    return dead_letter_of(
        Message("mail", b"1", "m", headers={"x-death": [death, {"reason": "old"}], **headers})
    )


def test_a_workers_letter_tells_its_failure() -> None:
    told = letter()
    assert (told.error_type, told.error, told.attempts) == ("builtins.ValueError", "no", 4)
    assert told.first_failed_at == told.failed_at == NOW - timedelta(hours=1)
    assert told.routing_key == "user.created"
    assert told.traceback == "ValueError: no\n"
    assert told.own_headers == {"colour": "red"}


def test_a_letter_of_the_broker_tells_its_reason() -> None:
    told = by_the_broker()
    assert (told.error_type, told.error, told.failed_at) == ("delivery_limit", None, NOW)
    assert told.routing_key == "user.gone"
    assert by_the_broker(**{wire.ROUTING_KEY: "user.created"}).routing_key == "user.created"


@pytest.mark.parametrize("headers", [{}, {"x-death": "?"}, {"x-death": []}, {wire.FAILED_AT: "yesterday"}])
def test_a_letter_of_somebody_else_tells_nothing(headers: dict[str, object]) -> None:
    told = dead_letter_of(Message("key", b"", headers=headers))
    assert (told.error_type, told.failed_at, told.routing_key) == ("unknown", None, "key")


@pytest.mark.parametrize(
    ("selection", "is_meant"),
    [
        (Selection(), True),
        (Selection(ids=frozenset({"m", "n"})), True),
        (Selection(ids=frozenset({"n"})), False),
        (Selection(error="ValueError"), True),
        (Selection(error="builtins.ValueError"), True),
        (Selection(error="Error"), False),
        (Selection.at(NOW, older_than=timedelta(minutes=59)), True),
        (Selection.at(NOW, older_than=timedelta(hours=2)), False),
        (Selection.at(NOW, newer_than=timedelta(hours=2)), True),
        (Selection.at(NOW, newer_than=timedelta(minutes=1)), False),
        (Selection.at(NOW, error="ValueError", older_than=timedelta(hours=2)), False),
    ],
)
def test_a_selection_means_what_fits_all_of_it(selection: Selection, is_meant: bool) -> None:
    assert selection.means(letter()) == is_meant


def test_a_fingerprint_tells_letters_apart_but_not_deliveries_of_one() -> None:
    def fingerprint(message: Message) -> int:
        return dead_letter_of(message).fingerprint

    again = replace(MESSAGE, headers={"x-delivery-count": 3, **MESSAGE.headers})
    assert fingerprint(again) == fingerprint(MESSAGE)
    others = [
        replace(MESSAGE, message_id="n"),
        replace(MESSAGE, body=b"2"),
        replace(MESSAGE, headers={**MESSAGE.headers, wire.FAILED_AT: "now"}),
    ]
    assert len({fingerprint(each) for each in (MESSAGE, *others)}) == 4
    assert Selection(among={fingerprint(MESSAGE)}).means(dead_letter_of(again))
    assert not any(Selection(among={fingerprint(MESSAGE)}).means(dead_letter_of(each)) for each in others)


def test_what_does_not_tell_when_it_failed_has_no_age() -> None:
    unknown = dead_letter_of(Message("key", b""))
    assert not Selection.at(NOW, older_than=timedelta()).means(unknown)
    assert not Selection.at(NOW, newer_than=timedelta(days=1)).means(unknown)


def test_a_redriven_message_begins_anew_with_the_id_it_had() -> None:
    again = redriven(letter(), "mail", NOW)
    assert (again.message_id, again.routing_key, again.expiration_ms) == ("m", "mail", None)
    assert again.headers == {wire.ROUTING_KEY: "user.created", wire.ATTEMPT: 1, "colour": "red"}


def test_what_the_broker_gave_up_begins_anew_without_its_marks_and_its_deadline() -> None:
    noted = {
        wire.ATTEMPT: 3,
        wire.DEADLINE: 5,
        wire.FIRST_FAILED_AT: "x",
        "x-first-death-queue": "mail",
        "x-delivery-count": 20,
    }
    again = redriven(by_the_broker(**noted), "mail", NOW)
    assert again.headers == {wire.ROUTING_KEY: "user.gone", wire.ATTEMPT: 1}


def test_errors_are_counted_the_most_frequent_first() -> None:
    census = Census()
    for hours in (3, 1, 2):
        census.add(letter(OSError("x"), timedelta(hours=hours)))
    census.add(letter())
    [(first, count), (second, _)] = census.by_count()
    assert (first, second, count.count) == ("builtins.OSError", "builtins.ValueError", 3)
    assert (count.oldest, count.newest) == (NOW - timedelta(hours=3), NOW - timedelta(hours=1))


@pytest.mark.parametrize("name", ["shop.mail", "shop.mail.dlq"])
def test_either_queue_names_both(name: str) -> None:
    assert queues_of(name) == ("shop.mail", "shop.mail.dlq")
