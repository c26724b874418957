"""One look at the database of an OutboxRelay: can it be entered, will the table do, how much is waiting.

Thin, and the only module of the operator that talks to Postgres.
"""

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg

from outbox import schema
from outbox.table import TableName
from outbox_core import backlog
from outbox_core.database import Database, DatabaseError, connect_arguments
from outbox_core.database_errors import translated
from outbox_core.database_isolation import files_named
from outbox_core.horizon import oldest_holder
from outbox_core.horizon_holder import MANY_DEAD_ROWS
from outbox_core.plaintext import is_plain
from outbox_operator import database_findings as findings
from outbox_operator.conditions import Finding
from outbox_operator.database_view import DatabaseView
from outbox_operator.resources.condition import ConditionStatus
from outbox_operator.resources.relay import Database as Wanted

LOOK_SECONDS = 10.0
"""How long a look may take altogether."""

_NAME = "outbox-operator"
_NEEDED_RIGHTS = ("SELECT", "UPDATE", "DELETE")
"""What a relay does to the table."""

_SESSION = (
    "SELECT current_user::text AS role, "
    "pg_catalog.current_setting('transaction_read_only')::boolean AS is_read_only"
)
_LACKING_RIGHTS = """
SELECT needed FROM pg_catalog.unnest($2::text[]) AS needed
WHERE NOT pg_catalog.has_table_privilege($1::text::regclass, needed)
"""


async def look(
    url: str, wanted: Wanted, ca: str | None = None, *, timeout_seconds: float = LOOK_SECONDS
) -> DatabaseView:
    """Connect, check the table, make it where that is asked for and it is missing, and count.

    `ca` has the certificates by which the server's is checked.
    """
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    try:
        if files := files_named(connect_arguments(url)):
            return DatabaseView(findings.files_refused(files))
        database = Database(url, ambient=False, ca=ca)
        async with asyncio.timeout_at(deadline):
            connection = await database.connect(_NAME, prepared=False)
    except DatabaseError as error:
        return DatabaseView(findings.not_entered(error, url))
    except TimeoutError as error:
        return DatabaseView(findings.not_entered(translated(error, database.where), url))
    try:
        async with asyncio.timeout_at(deadline):
            # One transaction, for a pooler that gives each another session. The server has the same limit: a
            # statement that waits for a lock would not notice that nobody waits for it any more.
            limit = f"SET LOCAL statement_timeout = {round(timeout_seconds * 1000)}"
            await connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; {limit}")
            view, dead_rows = await _view(connection, database.where, wanted)
            view = replace(view, is_plain=is_plain(connection))
            await connection.execute("COMMIT")
            if dead_rows >= MANY_DEAD_ROWS:
                view = replace(view, holder=await oldest_holder(connection))
            await connection.close()
            return view
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        return DatabaseView((findings.ENTERED, findings.failed(error, database.where)))
    finally:
        connection.terminate()


async def _view(connection: Any, where: str, wanted: Wanted) -> tuple[DatabaseView, int]:
    """The view, and how many dead rows the table has."""
    table = TableName.parse(wanted.table)
    finding = await _table_finding(connection, where, table, wanted)
    if finding.status is not ConditionStatus.TRUE:
        return DatabaseView((findings.ENTERED, finding)), 0
    measured = await backlog.measure(connection, table)
    view = DatabaseView(
        (findings.ENTERED, finding),
        measured.due,
        measured.oldest_seconds,
        measured.oldest_at,
        measured.parked,
    )
    return view, measured.dead_rows


async def _table_finding(connection: Any, where: str, table: TableName, wanted: Wanted) -> Finding:
    session = await connection.fetchrow(_SESSION)
    role: str = session["role"]
    if session["is_read_only"]:
        return findings.read_only(where)
    try:
        problems = await _problems(connection, table, wanted)
    except asyncpg.InsufficientPrivilegeError as error:
        return findings.may_not_make(error, where, table, role)
    except asyncpg.InvalidSchemaNameError as error:
        return findings.no_schema(error, where, role)
    if problems:
        return findings.unusable(problems, where, table)
    lacking = await connection.fetch(_LACKING_RIGHTS, table.sql, _NEEDED_RIGHTS)
    if lacking:
        return findings.may_not_use([row["needed"] for row in lacking], where, table, role)
    return findings.READY


async def _problems(connection: Any, table: TableName, wanted: Wanted) -> list[schema.Problem]:
    """What keeps a relay from using the table, after creating it if that is asked for."""
    notify = wanted.notify != "Never"
    problems = await schema.check(connection, table, wanted.channel, notify=notify)
    if wanted.manage_schema == "Create" and [problem.kind for problem in problems] == ["missing_table"]:
        await schema.create(connection, table, wanted.channel, notify=notify)
        problems = await schema.check(connection, table, wanted.channel, notify=notify)
    return [problem for problem in problems if problem.stops_relay]
