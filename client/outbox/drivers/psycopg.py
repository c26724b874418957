"""psycopg 3: connections and cursors, sync and async.

A statement always goes through a fresh plain cursor: the application's own may hold rows that it still wants
to read, may want `$1` parameters (RawCursor), or may be a server-side one that cannot insert.
"""

import sys
from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement

_IDLE = 0  # PQTRANS_IDLE: no transaction block is open


def _query(statement: Statement, args: Sequence[Any]) -> tuple[str, Sequence[Any] | None]:
    """The text and parameters; without parameters psycopg leaves percent signs alone."""
    return (statement.percent, args) if args else (statement.dollar, None)


def _autocommits(connection: Any) -> bool:
    return bool(connection.autocommit) and connection.pgconn.transaction_status == _IDLE


class PsycopgConnection:
    is_async: Literal[False] = False

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        cursor = sys.modules["psycopg"].Cursor(session)
        cursor.execute(*_query(statement, args))
        return int(cursor.rowcount)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        psycopg = sys.modules["psycopg"]
        cursor = psycopg.Cursor(session, row_factory=psycopg.rows.tuple_row)
        rows: list[Row] = cursor.execute(*_query(statement, args)).fetchall()
        return rows

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session)


class PsycopgCursor(PsycopgConnection):
    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return super().execute(session.connection, statement, args)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return super().fetch(session.connection, statement, args)

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session.connection)


class AsyncPsycopgConnection:
    is_async: Literal[True] = True

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        cursor = sys.modules["psycopg"].AsyncCursor(session)
        await cursor.execute(*_query(statement, args))
        return int(cursor.rowcount)

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        psycopg = sys.modules["psycopg"]
        cursor = psycopg.AsyncCursor(session, row_factory=psycopg.rows.tuple_row)
        await cursor.execute(*_query(statement, args))
        rows: list[Row] = await cursor.fetchall()
        return rows

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session)


class AsyncPsycopgCursor(AsyncPsycopgConnection):
    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return await super().execute(session.connection, statement, args)

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return await super().fetch(session.connection, statement, args)

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session.connection)
