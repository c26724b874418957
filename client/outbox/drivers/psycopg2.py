"""psycopg2 connections and cursors.

A statement always goes through a fresh plain cursor: the application's own may hold rows that it still wants
to read, or may be a server-side one that cannot insert.
"""

import sys
from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement

_IDLE = 0  # TRANSACTION_STATUS_IDLE: no transaction block is open


class Psycopg2Connection:
    is_async: Literal[False] = False

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        with self._sent(session, statement, args) as cursor:
            return int(cursor.rowcount)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        with self._sent(session, statement, args) as cursor:
            rows: list[Row] = cursor.fetchall()
            return rows

    def autocommits(self, session: Any) -> bool:
        return bool(session.autocommit) and session.get_transaction_status() == _IDLE

    def _sent(self, connection: Any, statement: Statement, args: Sequence[Any]) -> Any:
        cursor = connection.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)
        if args:
            cursor.execute(statement.percent, args)
        else:
            cursor.execute(statement.dollar)
        return cursor


class Psycopg2Cursor(Psycopg2Connection):
    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return super().execute(session.connection, statement, args)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return super().fetch(session.connection, statement, args)

    def autocommits(self, session: Any) -> bool:
        return super().autocommits(session.connection)
