"""One SQL statement in the two spellings of parameters that Postgres drivers know."""

import re
from dataclasses import dataclass

from outbox.table import TableName

_PLACEHOLDER = re.compile(r"\$\d+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement whose parameters occur once and in order, so that both spellings take the same tuple."""

    name: str
    """What it does, for drivers that carry it out without SQL (the in-memory one of `outbox.testing`)."""
    dollar: str
    """With `$1`, as asyncpg sends it to the server; also the text to send when there are no parameters."""
    percent: str
    """With `%s`, as psycopg and Django interpolate it; every other percent sign is doubled."""
    creates: TableName | None = None
    """The table that it creates unasked, for drivers whose session may keep its tables elsewhere."""

    @classmethod
    def of(cls, name: str, sql: str, table: str = "") -> "Statement":
        """Spell `sql` both ways; `{table}` stands for an identifier, which may itself look like `$1`."""
        percent = _PLACEHOLDER.sub("%s", sql.replace("%", "%%"))
        return cls(name, sql.replace("{table}", table), percent.replace("{table}", table.replace("%", "%%")))
