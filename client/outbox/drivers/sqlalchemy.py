"""SQLAlchemy sessions and connections, sync and async, on any of its Postgres drivers.

The statement goes to the driver as it is (`exec_driver_sql`): there is nothing to compile, at no emit.
"""

from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement

# psycopg2 would look for parameters in a text that has none, and trip over a percent sign.
_NO_PARAMETERS = {"no_parameters": True}


def _send(connection: Any, statement: Statement, args: Sequence[Any]) -> Any:
    dialect = connection.dialect
    if dialect.name != "postgresql":
        raise TypeError(f"the outbox table lives in Postgres; this SQLAlchemy session is on {dialect.name}")
    if not args:
        return connection.exec_driver_sql(statement.dollar, None, _NO_PARAMETERS)
    sql = statement.dollar if dialect.paramstyle == "numeric_dollar" else statement.percent
    return connection.exec_driver_sql(sql, args)


def _execute(connection: Any, statement: Statement, args: Sequence[Any]) -> int:
    return int(_send(connection, statement, args).rowcount)


def _fetch(connection: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
    return [tuple(row) for row in _send(connection, statement, args)]


def _execute_in_session(session: Any, statement: Statement, args: Sequence[Any]) -> int:
    return _execute(session.connection(), statement, args)


def _fetch_in_session(session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
    return _fetch(session.connection(), statement, args)


def _autocommits(connection: Any) -> bool:
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


class SqlAlchemyConnection:
    is_async: Literal[False] = False

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return _execute(session, statement, args)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return _fetch(session, statement, args)

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session)


class SqlAlchemySession:
    is_async: Literal[False] = False

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return _execute_in_session(session, statement, args)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return _fetch_in_session(session, statement, args)

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session.connection())


class SqlAlchemyAsyncConnection:
    is_async: Literal[True] = True

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return int(await session.run_sync(_execute, statement, args))

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        rows: list[Row] = await session.run_sync(_fetch, statement, args)
        return rows

    def autocommits(self, session: Any) -> bool:
        return _autocommits(session.sync_connection)


class SqlAlchemyAsyncSession:
    is_async: Literal[True] = True

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return int(await session.run_sync(_execute_in_session, statement, args))

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        rows: list[Row] = await session.run_sync(_fetch_in_session, statement, args)
        return rows

    def autocommits(self, session: Any) -> bool:
        # The statement before has opened the connection already, so this does no I/O.
        return _autocommits(session.sync_session.connection())


class SqlAlchemyAsyncScopedSession(SqlAlchemyAsyncSession):
    """Unlike `scoped_session`, its async sibling does not pass on all of the session's methods."""

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return await super().execute(session(), statement, args)

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return await super().fetch(session(), statement, args)

    def autocommits(self, session: Any) -> bool:
        return super().autocommits(session())
