"""SQLAlchemy sessions and connections, sync and async, on any of its Postgres drivers.

The statement goes to the driver as it is (`exec_driver_sql`): there is nothing to compile, at no emit.
"""

import functools
import sys
from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement
from outbox.table import DEFAULT_TABLE, TableName

# Options of the application's own session: a server-side cursor cannot insert, and does not know the count.
_OPTIONS = {"stream_results": False, "yield_per": None}
# psycopg2 would look for parameters in a text that has none, and trip over a percent sign.
_NO_PARAMETERS = {**_OPTIONS, "no_parameters": True}
# `outbox.schema.trigger.TWO_PHASE`, which an application that only emits does not import.
_ANNOUNCE_TWO_PHASES = "SET LOCAL outbox.two_phase = 'on'"


def _send(connection: Any, statement: Statement, args: Sequence[Any]) -> Any:
    dialect = connection.dialect
    if dialect.name != "postgresql":
        raise TypeError(f"the outbox table lives in Postgres; this SQLAlchemy session is on {dialect.name}")
    if statement.creates is not None:
        _check_not_translated(connection, statement.creates)
    if _commits_in_two_phases(connection):
        # A rollback to a savepoint takes the setting back, so that it is made before each statement.
        connection.exec_driver_sql(_ANNOUNCE_TWO_PHASES, None, _NO_PARAMETERS).close()
    if not args:
        return connection.exec_driver_sql(statement.dollar, None, _NO_PARAMETERS)
    sql = statement.dollar if dialect.paramstyle == "numeric_dollar" else statement.percent
    return connection.exec_driver_sql(sql, args, _OPTIONS)


def _commits_in_two_phases(connection: Any) -> bool:
    two_phases = sys.modules["sqlalchemy.engine"].TwoPhaseTransaction
    return isinstance(connection.get_transaction(), two_phases)


def _check_not_translated(connection: Any, table: TableName) -> None:
    """Raise if the application's tables of this schema are in another one, since ours would not be there."""
    schemas = connection.get_execution_options().get("schema_translate_map") or {}
    if table.schema in schemas:
        raise ValueError(
            f"{table.sql} is missing, and would be created outside of the schema that the session's "
            "schema_translate_map names, which emits do not follow; name the schema, as in "
            f'Emitter(table_name="{schemas[table.schema]}.{table.name}")'
        )


def _execute(connection: Any, statement: Statement, args: Sequence[Any]) -> int:
    result = _send(connection, statement, args)
    count = int(result.rowcount)
    result.close()
    return count


def _fetch(connection: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
    return [tuple(row) for row in _send(connection, statement, args)]


def _execute_in_session(session: Any, statement: Statement, args: Sequence[Any]) -> int:
    return _execute(_connection(session), statement, args)


def _fetch_in_session(session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
    return _fetch(_connection(session), statement, args)


def _connection(session: Any) -> Any:
    """The connection on which the session would write the outbox table."""
    exceptions = sys.modules["sqlalchemy.exc"]
    try:
        return session.connection(bind_arguments={"clause": _write()})
    except exceptions.UnboundExecutionError as error:
        if bind := _only_bind(session):
            return session.connection(bind_arguments={"bind": bind})
        raise ValueError(
            "this SQLAlchemy session has no bind for the outbox table; emit through the connection of the "
            'data that the message is about: session.connection(bind_arguments={"mapper": Model}), which an '
            "AsyncSession has to await"
        ) from error


def _only_bind(session: Any) -> Any:
    """The engine or connection of a session that has `binds` for its models, if all of them have the same."""
    unscoped = session.registry() if hasattr(session, "registry") else session
    # SQLAlchemy 2.0 and 1.4 have no public name for it.
    binds = getattr(unscoped, "binds", None) or getattr(unscoped, "_Session__binds", {})
    distinct = {id(bind): bind for bind in binds.values()}
    return next(iter(distinct.values())) if len(distinct) == 1 else None


@functools.cache
def _write() -> Any:
    """What a `get_bind` of the application takes for a write: many look for UPDATE or DELETE only."""
    sqlalchemy = sys.modules["sqlalchemy"]
    return sqlalchemy.update(sqlalchemy.table(DEFAULT_TABLE))


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
        return _autocommits(_connection(session))


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
        return _autocommits(_connection(session.sync_session))


class SqlAlchemyAsyncScopedSession(SqlAlchemyAsyncSession):
    """Unlike `scoped_session`, its async sibling does not pass on all of the session's methods."""

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return await super().execute(session(), statement, args)

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return await super().fetch(session(), statement, args)

    def autocommits(self, session: Any) -> bool:
        return super().autocommits(session())
