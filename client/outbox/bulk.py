"""Many rows as the parameters of one statement."""

from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from outbox.drivers.driver import Row
from outbox.message import PLAIN_FIELDS, MessageRow

MAX_BULK_SIZE = 256 * 1024 * 1024
"""How many bytes the bodies and headers of one bulk may have. Postgres takes a statement with its parameters
of up to 1 GiB, beyond which the connection is lost; some drivers write a byte as two hexadecimal digits."""


class Bulk:
    """The rows of one `bulk_emit`, a timer that occurs twice being kept once, as if emitted one by one."""

    def __init__(self, ids: Sequence[UUID], rows: Sequence[MessageRow]) -> None:
        size = sum(len(row.body) + len(row.headers or "") for row in rows)
        if size > MAX_BULK_SIZE:
            raise ValueError(
                f"{len(rows)} messages have {size} bytes, more than one statement can hold "
                f"({MAX_BULK_SIZE}); emit them in several bulks of the same transaction"
            )
        self.rows = rows
        self._ids = ids
        inserted = _timers_sorted([*_first_of_each_timer(rows)])
        columns = dict(zip(MessageRow._fields, zip(*inserted, strict=True), strict=False))
        used = {field for field, values in columns.items() if any(value is not None for value in values)}
        self.has_timers = "timer_id" in used
        self.is_plain = used <= set(PLAIN_FIELDS)
        """Whether `arrays` has the `PLAIN_FIELDS` only: the rest would be nothing but NULLs to send."""
        self.ordering_keys = _ordering_keys(inserted)
        timers = [row for row in inserted if row.timer_id is not None]
        self.keys_to_lock = _ordering_keys(timers) if len(timers) > 1 else []
        """The ordering keys whose timers have to keep the caller's order: one bulk at a time inserts them."""
        fields = PLAIN_FIELDS if self.is_plain else MessageRow._fields
        self.arrays = tuple(list(columns[field]) for field in fields) if rows else ()

    def emitted(self, inserted: list[Row] | None) -> list[UUID | None]:
        """An id for each message given; None for those not among the `inserted` (None: all of them were)."""
        if inserted is None:
            return [*self._ids]
        found = {message_id for (message_id,) in inserted}
        return [each if str(each) in found else None for each in self._ids]


def _ordering_keys(rows: Iterable[MessageRow]) -> list[str]:
    return sorted({row.ordering_key for row in rows if row.ordering_key is not None})


def _first_of_each_timer(rows: Sequence[MessageRow]) -> Iterator[MessageRow]:
    # One statement cannot meet the same conflicting row twice.
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if row.timer_id is not None:
            timer = (row.routing_key, row.timer_id)
            if timer in seen:
                continue
            seen.add(timer)
        yield row


def _timers_sorted(rows: list[MessageRow]) -> list[MessageRow]:
    """The rows with their timers in an order that does not depend on the caller, since each takes a lock.

    Two transactions that insert the same timers in opposite orders would wait for each other. Within an
    ordering key the order stays: that of the INSERTs is the one in which the rows leave. Such
    a key is locked instead.
    """
    if not any(row.timer_id is not None for row in rows):
        return rows
    places = [place for place, row in enumerate(rows) if row.timer_id is not None or row.ordering_key]
    ordered = sorted((rows[place] for place in places), key=_insertion_order)
    result = [*rows]
    for place, row in zip(places, ordered, strict=True):
        result[place] = row
    return result


def _insertion_order(row: MessageRow) -> tuple[str, str, str]:
    """Timers without an ordering key by their names; then the rows of each key, equal to each other."""
    if row.ordering_key is not None:
        return (row.ordering_key, "", "")
    return ("", row.routing_key, row.timer_id or "")
