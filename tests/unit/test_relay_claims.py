"""What a relay remembers between its claims."""

import json
from typing import Any

import pytest

from outbox_relay.claims import START, Claim, Claims, Position

NOW = 1_700_000_000_000_000
WINDOW = Position(NOW - 250_000, -(2**63))


def report(
    *,
    first: tuple[int | None, int] | None = None,
    last: tuple[int, int] | None = None,
    keys: dict[str, int] | None = None,
    discovered: int | None = None,
    unclaimable: list[str] | None = None,
) -> str:
    count = len(keys or ()) if discovered is None else discovered
    found = {"clock": NOW, "first": first, "last": last, "keys": keys, "discovered": count}
    return json.dumps({**found, "unclaimable": unclaimable})


def keys_of(claim: Claim) -> list[str]:
    keys: list[str] = claim.arguments[4]
    return keys


def move(claims: Claims, claimed: list[str], batch: int = 10, **found: Any) -> Claim:
    claim = claims.begin(batch)
    claims.found(claim, report(**found), [(key, 1) for key in claimed])
    claims.ended(claim)
    return claim


def test_the_first_claim_reads_from_the_beginning() -> None:
    claims = Claims()
    assert claims.positions() == (None, START.id, None, START.id)
    assert claims.begin(10).arguments[:3] == (10, None, START.id)


def test_a_claim_begins_at_the_first_row_that_was_left() -> None:
    claims = Claims()
    move(claims, [], first=(NOW - 5_000_000, 7))
    assert claims.first == Position(NOW - 5_000_000, 7)


def test_what_became_due_a_moment_ago_is_read_again() -> None:
    claims = Claims()
    move(claims, [], first=(NOW - 1_000, 7))
    assert claims.first == WINDOW
    move(claims, [])
    assert claims.first == WINDOW
    assert claims.cursor == WINDOW


def test_some_claims_read_further_back() -> None:
    claims = Claims()
    read_back = []
    for number in range(100):
        claim = claims.begin(10)
        clock = NOW + number * 10_000
        claims.found(claim, json.dumps(json.loads(report()) | {"clock": clock}), [])
        if number:
            read_back.append(clock - 10_000 - claim.arguments[1])
    assert [read_back.count(micros) for micros in (4_000_000, 1_000_000, 250_000)] == [2, 18, 79]


def test_a_row_due_since_minus_infinity_has_a_position() -> None:
    claims = Claims()
    move(claims, [], first=(None, 7))
    assert claims.first == Position(START.micros, 7)
    assert claims.positions()[:2] == (None, 7)


def test_a_clock_that_is_set_back_takes_the_position_along() -> None:
    claims = Claims()
    move(claims, [], first=(NOW - 5_000_000, 7))
    claim = claims.begin(10)
    earlier = json.loads(report()) | {"clock": NOW - 60_000_000}
    claims.found(claim, json.dumps(earlier), [])
    assert claims.first.micros == NOW - 60_250_000


def test_a_key_is_claimed_from_until_it_has_nothing_to_claim() -> None:
    claims = Claims()
    move(claims, ["a"], keys={"a": 1})
    assert claims.has_more
    assert keys_of(move(claims, ["a"])) == ["a"]
    assert keys_of(move(claims, [], unclaimable=["a"])) == ["a"]
    assert not claims.has_more
    assert keys_of(claims.begin(10)) == []


def test_keys_take_turns() -> None:
    claims = Claims()
    move(claims, [], batch=2, keys=dict.fromkeys("abcde", 1), unclaimable=[])
    # None was claimed though all were due: somebody else has them.
    assert not claims.has_more
    assert claims.claimable(dict.fromkeys("abcde", 1))
    assert keys_of(move(claims, ["a", "b"], batch=2)) == ["a", "b"]
    assert keys_of(move(claims, ["c", "d"], batch=2)) == ["c", "d"]
    assert keys_of(move(claims, ["e", "a"], batch=2)) == ["e", "a"]


def test_keys_beyond_a_full_batch_are_claimed_from_next() -> None:
    claims = Claims()
    move(claims, ["a", "b"], batch=2, keys=dict.fromkeys("abcd", 1))
    assert {*keys_of(claims.begin(4))} == {"a", "b", "c", "d"}


def test_two_lanes_do_not_ask_for_the_same_key() -> None:
    claims = Claims()
    claims.claimable({"a": 1, "b": 1})
    first = claims.begin(10)
    assert keys_of(first) == ["a", "b"]
    second = claims.begin(10)
    assert keys_of(second) == []
    # The second one meets a locked row of a key that the first one has.
    claims.found(second, report(keys={"a": 1}), [])
    claims.ended(second)
    claims.found(first, report(), [("a", 1)])
    claims.ended(first)
    assert keys_of(claims.begin(10)) == ["a"]


def test_a_claim_that_fails_gives_its_keys_back() -> None:
    claims = Claims()
    claims.claimable({"a": 1, "b": 1})
    claims.ended(claims.begin(10))
    assert keys_of(claims.begin(10)) == ["a", "b"]


def test_pages_follow_each_other_and_begin_again_with_the_last_moment() -> None:
    claims = Claims()
    page = claims.begin(500).page
    claims = Claims()
    keys = {f"k{number}": number for number in range(page)}
    move(claims, [], keys=keys, last=(NOW - 9, 3), unclaimable=[*keys])
    assert claims.cursor == Position(NOW - 9, 3)
    assert claims.has_more
    move(claims, [], keys={"z": 1}, unclaimable=["z"])
    assert claims.cursor == WINDOW
    assert not claims.has_more


def test_pages_of_keys_that_wait_grow() -> None:
    claims = Claims()
    pages = []
    for _ in range(6):
        page = claims.begin(10).page
        pages.append(page)
        move(claims, [], keys={"stuck": 1}, discovered=page, last=(NOW - 9, 3), unclaimable=["stuck"])
    assert pages[0] < pages[1] < pages[2]
    assert pages[-1] == pages[-2] == 16_000
    move(claims, ["flows"], keys={"flows": 1})
    assert claims.begin(10).page == pages[0]


def test_known_keys_that_fill_a_batch_leave_little_time_to_discover_others() -> None:
    claims = Claims()
    claims.claimable(dict.fromkeys(map(str, range(20)), 1))
    pages = [move(claims, list("0123456789"), first=None).page for _ in range(16)]
    assert sum(page > 0 for page in pages) == 2


def test_late_rows_are_claimed_once_by_their_ids() -> None:
    claims = Claims()
    move(claims, [], first=(NOW - 5, 9))
    assert claims.passed_by([(3, NOW - 9_000_000), (4, NOW - 8_000_000)], 1_000)
    assert claims.has_more
    assert claims.begin(10).arguments[3] == [3, 4]
    assert claims.begin(10).arguments[3] == []
    assert not claims.passed_by([], 1_000)


def test_many_late_rows_are_claimed_from_the_first_one_on() -> None:
    claims = Claims()
    move(claims, [])
    claims.passed_by([(3, NOW - 9_000_000), (4, NOW - 8_000_000)], 2)
    assert claims.first == Position(NOW - 9_000_000, 3)


def test_after_a_reset_what_was_under_way_is_forgotten() -> None:
    claims = Claims()
    claim = claims.begin(10)
    claims.reset()
    claims.found(claim, report(first=(NOW - 5, 9)), [("a", 1)])
    claims.ended(claim)
    assert claims.first == START
    assert keys_of(claims.begin(10)) == ["a"]


def test_a_claim_that_discovers_no_keys_does_not_pass_them_by() -> None:
    claims = Claims()
    move(claims, [])
    discovered = claims.cursor
    claims.claimable(dict.fromkeys(map(str, range(20)), 1))
    for number in range(1, 8):
        claim = claims.begin(10)
        later = json.loads(report()) | {"clock": NOW + number * 1_000_000}
        claims.found(claim, json.dumps(later), [(key, 1) for key in claim.taken])
        claims.ended(claim)
        if claim.page:
            break
        assert claims.cursor == discovered
    else:
        pytest.fail("no page was read")
    assert number > 1
    assert claim.arguments[6] <= discovered.micros


def test_keys_that_another_lane_has_do_not_keep_this_one_from_discovering() -> None:
    claims = Claims()
    claims.claimable({"a": 1})
    claims.begin(1)
    assert all(claims.begin(1).page for _ in range(16))


def test_a_key_whose_batch_ended_while_another_lane_was_reading_is_claimed_from() -> None:
    claims = Claims()
    claims.claimable({"a": 1})
    first, second = claims.begin(10), claims.begin(10)
    claims.found(first, report(), [("a", 1)])
    claims.ended(first)
    # This one met the locked row, before the first one had ended.
    claims.found(second, report(keys={"a": 1}), [])
    claims.ended(second)
    assert keys_of(claims.begin(10)) == ["a"]


def test_late_rows_found_during_a_claim_are_not_passed_by_again() -> None:
    claims = Claims()
    move(claims, [], first=(NOW - 5, 9))
    claim = claims.begin(10)
    late = Position(NOW - 9_000_000, 3)
    claims.passed_by([(late.id, late.micros), (4, NOW - 8_000_000)], 2)
    claims.found(claim, report(first=(NOW - 5, 9)), [])
    claims.ended(claim)
    assert claims.first == late
    move(claims, [], first=(NOW - 5_000_000, 5))
    assert claims.first == Position(NOW - 5_000_000, 5)


def test_pages_of_rows_due_since_minus_infinity_follow_each_other() -> None:
    claims = Claims()
    page = claims.begin(10).page
    claims = Claims()
    claim = claims.begin(10)
    found = report(keys={"stuck": 1}, discovered=page, unclaimable=["stuck"])
    claims.found(claim, json.dumps(json.loads(found) | {"last": [None, 700]}), [])
    claims.ended(claim)
    assert claims.begin(10).arguments[6:8] == (None, 700)
