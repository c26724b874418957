"""A Django database connection, given as `connection`, `connections["…"]` or the alias itself."""

import sys
from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement


class DjangoConnection:
    is_async: Literal[False] = False

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        with _cursor(session) as cursor:
            _send(cursor, statement, args)
            return int(cursor.rowcount)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        with _cursor(session) as cursor:
            _send(cursor, statement, args)
            return [tuple(row) for row in cursor.fetchall()]

    def autocommits(self, session: Any) -> bool:
        return bool(_connection(session).autocommit)


def _connection(session: Any) -> Any:
    if not isinstance(session, str):
        return session
    django_db = sys.modules.get("django.db")
    if django_db is None:
        raise TypeError(f"{session!r} would be a Django database alias, but Django is not loaded here")
    return django_db.connections[session]


def _cursor(session: Any) -> Any:
    connection = _connection(session)
    if connection.vendor != "postgresql":
        raise TypeError(f"the outbox table lives in Postgres; {connection.alias!r} is on {connection.vendor}")
    return connection.cursor()


def _send(cursor: Any, statement: Statement, args: Sequence[Any]) -> None:
    if args:
        cursor.execute(statement.percent, args)
    else:
        cursor.execute(statement.dollar)
