"""The inbox: a table that notes which messages were handled, by queue. The queries are in `inbox.sql`.

Everything here works through a session of any driver, as `outbox.schema` does, and commits nothing.
"""

import re
from importlib import resources
from typing import Any

from outbox.body import utf8
from outbox.drivers import Statement, recognise
from outbox.drivers.driver import Row
from outbox.schema.locking import lock_sql
from outbox.schema.observation import OBSERVE, ObservedTable
from outbox.schema.quoting import dollar_quoted
from outbox.schema.row_security import rows_hidden, showing_cure
from outbox.table import TableName, quote_identifier, quote_literal

DEFAULT_TABLE = "outbox_inbox"
"""The table's name unless a user chooses another."""

COLUMNS = {
    "queue": "text",
    "message_id": "text",
    "handled_at": "timestamp with time zone",
}
"""The columns that the inbox reads or writes, and their types."""

_TEXT = ("text", "character varying")
_KEY = "UNIQUE btree (queue, message_id)"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"\$\d+")


class Inbox:
    """The inbox under one name."""

    def __init__(self, table_name: str | TableName = DEFAULT_TABLE) -> None:
        self.table = TableName.parse(table_name)
        script = resources.files("outbox_worker").joinpath("inbox.sql").read_text()
        _, *parts = _NAME.split(script)
        texts = dict(zip(parts[::2], map(_without_comments, parts[1::2]), strict=True))
        statements = {name: Statement.of(name, sql, self.table.sql) for name, sql in texts.items()}
        self.note = statements["note"]
        self.find = statements["find"]
        self.forget = statements["forget"]
        self.committed = statements["committed"]
        self.transaction = statements["transaction"]
        self._purge = statements["purge"]
        self._note_parts = _parts(texts["note"], self.table)
        self._find_parts = _parts(texts["find"], self.table)
        self._forget_parts = _parts(texts["forget"], self.table)

    def note_text(self, queue: str, message_id: str) -> str:
        """`note` with its values written out: such a text is one round trip together with BEGIN, and needs no
        prepared statement, which a pooler might not have."""
        return _written_out(self._note_parts, queue, message_id)

    def find_text(self, queue: str, message_id: str) -> str:
        """`find` with its values written out."""
        return _written_out(self._find_parts, queue, message_id)

    def forget_text(self, queue: str, message_id: str) -> str:
        """`forget` with its values written out."""
        return _written_out(self._forget_parts, queue, message_id)

    async def create(self, session: Any) -> None:
        """Make the table where it is missing."""
        await _execute(session, Statement.of("create_inbox", create_sql(self.table)))

    async def check(self, session: Any) -> list[str]:
        """Tell what is wrong with the table, a line each; nothing where it will do."""
        rows = await fetch(session, OBSERVE, self.table.sql)
        return problems(ObservedTable.read(rows[0][0]) if rows else None, self.table)

    async def purge(self, session: Any, older_than_seconds: float, limit: int) -> int:
        """Forget at most `limit` messages that were handled longer ago than this, and tell how many."""
        return await _execute(session, self._purge, older_than_seconds, limit)


def create_sql(table_name: str | TableName = DEFAULT_TABLE) -> str:
    """One statement that makes the table where it is missing, for a migration.

    It may run any number of times, also at once. A table that exists is left alone, and nobody locked out.
    """
    table = TableName.parse(table_name)
    body = f"""
BEGIN{lock_sql(table)}
    IF pg_catalog.to_regclass({quote_literal(table.sql)}) IS NULL THEN
        CREATE TABLE {table.sql} (
            queue text NOT NULL,
            message_id text NOT NULL,
            handled_at timestamp with time zone NOT NULL DEFAULT now(),
            PRIMARY KEY (queue, message_id)
        ) WITH (
            -- Retention begins at the head of an index, and by default a fifth of the rows may be dead.
            autovacuum_vacuum_scale_factor = 0.01
        );
        -- Retention deletes the oldest.
        CREATE INDEX {quote_identifier(table.derived("handled_idx"))} ON {table.sql} (handled_at);
    END IF;
END
"""
    return f"DO {dollar_quoted(body, 'outbox')};"


def problems(observed: ObservedTable | None, table: TableName) -> list[str]:
    """All that keeps a live table from working as an inbox, with the cure."""
    if observed is None:
        return [f"table {table.sql}: it does not exist; run outbox_worker.inbox.create_sql()"]
    if observed.kind not in ("r", "p"):
        return [f"table {table.sql}: it is not a table; give the name of the table itself"]
    live = {column.name: column for column in observed.columns}
    found = [
        f"column {column.name} is NOT NULL and has no default, so that nothing can be noted; run "
        f"ALTER TABLE {table.sql} ALTER COLUMN {quote_identifier(column.name)} DROP NOT NULL"
        for column in observed.columns
        if column.name not in COLUMNS and not column.nullable and not column.filled and not observed.triggers
    ]
    for name, kind in COLUMNS.items():
        accepted = _TEXT if kind == "text" else (kind,)
        if name not in live:
            found.append(f"column {name} is missing; run ALTER TABLE {table.sql} ADD COLUMN {name} {kind}")
        elif live[name].type not in accepted:
            found.append(
                f"column {name} is {live[name].type} and must be {kind}; "
                f"run ALTER TABLE {table.sql} ALTER COLUMN {name} TYPE {kind}"
            )
    if "handled_at" in live and not live["handled_at"].filled:
        found.append(
            "column handled_at lacks its default now(); "
            f"run ALTER TABLE {table.sql} ALTER COLUMN handled_at SET DEFAULT now()"
        )
    # Without it there is nothing for a second note to conflict with.
    if not any(index.usable and index.shape == _KEY for index in observed.indexes):
        found.append(
            "nothing keeps a message from being noted twice; "
            f"run ALTER TABLE {table.sql} ADD PRIMARY KEY (queue, message_id)"
        )
    security = observed.row_security
    if security is not None and (hidden := rows_hidden(security)):
        cure = showing_cure(table, security, "worker")
        found.append(f"{hidden}, so that what was handled is not recognised; {cure}")
    return [f"table {table.sql}: {problem}" for problem in found]


def check_id(message_id: str) -> None:
    """Raise a ValueError for what Postgres cannot store as text: no waiting for the database helps."""
    utf8(message_id, "message_id")
    if "\0" in message_id:
        raise ValueError(
            f"message_id must not contain a NUL character, which Postgres cannot store: {message_id!r}"
        )


def _without_comments(sql: str) -> str:
    return "\n".join(line for line in sql.strip().splitlines() if not line.startswith("--"))


def _parts(sql: str, table: TableName) -> tuple[str, ...]:
    """What stands around the parameters, of which there are two."""
    return tuple(part.replace("{table}", table.sql) for part in _PARAMETER.split(sql))


def _written_out(parts: tuple[str, ...], queue: str, message_id: str) -> str:
    check_id(message_id)
    head, middle, tail = parts
    return f"{head}{quote_literal(queue)}{middle}{quote_literal(message_id)}{tail}"


async def _execute(session: Any, statement: Statement, *args: Any) -> int:
    driver = recognise(session)
    if driver.is_async:
        return await driver.execute(session, statement, args)
    return driver.execute(session, statement, args)


async def fetch(session: Any, statement: Statement, *args: Any) -> list[Row]:
    """Send the statement, and read the rows it returns."""
    driver = recognise(session)
    if driver.is_async:
        return await driver.fetch(session, statement, args)
    return driver.fetch(session, statement, args)
