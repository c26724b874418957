"""From which id on the rows of a key have to be read."""

from outbox_relay.key_bounds import LOWEST_ID, KeyBounds


def end_epoch(bounds: KeyBounds, *writers: str) -> None:
    bounds.writers(bounds.begin_epoch(), {*writers})


def test_a_bound_moves_when_the_writers_of_its_time_have_ended() -> None:
    bounds = KeyBounds()
    bounds.first("k", 5, bounds.ended_epoch)
    end_epoch(bounds, "a", "b")
    bounds.first("k", 7, bounds.ended_epoch)
    assert bounds.of("k") == LOWEST_ID
    end_epoch(bounds, "b", "c")
    bounds.first("k", 8, bounds.ended_epoch)
    assert bounds.of("k") == LOWEST_ID
    end_epoch(bounds, "c", "d")
    bounds.first("k", 9, bounds.ended_epoch)
    assert bounds.of("k") == 5


def test_a_row_that_a_writer_has_committed_late_is_not_passed_by() -> None:
    bounds = KeyBounds()
    bounds.first("k", 5, bounds.ended_epoch)
    end_epoch(bounds, "late")
    end_epoch(bounds)
    # It has committed row 3, which is the first now.
    bounds.first("k", 3, bounds.ended_epoch)
    assert bounds.of("k") == LOWEST_ID
    end_epoch(bounds)
    end_epoch(bounds)
    bounds.first("k", 6, bounds.ended_epoch)
    assert bounds.of("k") == 3


def test_rows_read_while_the_writers_are_read_belong_to_the_next_epoch() -> None:
    bounds = KeyBounds()
    epoch = bounds.begin_epoch()
    bounds.first("k", 5, bounds.ended_epoch)
    bounds.writers(epoch, set())
    end_epoch(bounds, "late")
    bounds.first("k", 7, bounds.ended_epoch)
    assert bounds.of("k") == LOWEST_ID


def test_a_row_read_before_the_last_writer_had_ended_moves_no_bound() -> None:
    bounds = KeyBounds()
    bounds.first("k", 5, bounds.ended_epoch)
    end_epoch(bounds, "late")
    before = bounds.ended_epoch
    end_epoch(bounds)
    bounds.first("k", 7, before)
    assert bounds.of("k") == LOWEST_ID


def test_a_row_below_the_bound_takes_it_away() -> None:
    bounds = KeyBounds()
    for row_id in (5, 6):
        bounds.first("k", row_id, bounds.ended_epoch)
        end_epoch(bounds)
        end_epoch(bounds)
    assert bounds.of("k") == 5
    bounds.seen("k", 5)
    assert bounds.of("k") == 5
    bounds.seen("k", 2)
    assert bounds.of("k") == LOWEST_ID
    bounds.seen("other", 2)


def test_as_many_keys_are_known_as_are_worth_their_memory() -> None:
    bounds = KeyBounds()
    for number in range(30_000):
        bounds.first(str(number), number, bounds.ended_epoch)
    assert len(bounds._bounds) == 20_000
