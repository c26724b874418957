"""Many rows as the parameters of one statement."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from outbox.drivers.driver import Row
from outbox.message import PLAIN_FIELDS, MessageRow


class Bulk:
    """The rows of one `bulk_emit`, a timer that occurs twice being kept once, as if emitted one by one."""

    def __init__(self, ids: Sequence[UUID], rows: Sequence[MessageRow]) -> None:
        self.rows = rows
        self._ids = ids
        columns = dict(zip(MessageRow._fields, zip(*_first_of_each_timer(rows), strict=True), strict=False))
        used = {field for field, values in columns.items() if any(value is not None for value in values)}
        self.has_timers = "timer_id" in used
        self.is_plain = used <= set(PLAIN_FIELDS)
        """Whether `arrays` has the `PLAIN_FIELDS` only: the rest would be nothing but NULLs to send."""
        fields = PLAIN_FIELDS if self.is_plain else MessageRow._fields
        self.arrays = tuple(list(columns[field]) for field in fields) if rows else ()

    def emitted(self, inserted: list[Row] | None) -> list[UUID | None]:
        """An id for each message given; None for those not among the `inserted` (None: all of them were)."""
        if inserted is None:
            return [*self._ids]
        found = {message_id for (message_id,) in inserted}
        return [each if str(each) in found else None for each in self._ids]


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
