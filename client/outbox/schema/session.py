"""The table created, upgraded and checked through a session of any supported driver. Nothing here commits.

`create`, `upgrade` and `check` are awaited, and take a sync session too; `…_sync` is for plain code.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from outbox.drivers import Statement, SyncDriver, recognise
from outbox.drivers.driver import Row
from outbox.schema.creation import create_sql
from outbox.schema.locking import LOCK_ATTEMPTS, LOCK_TIMEOUT
from outbox.schema.problem import Problem
from outbox.schema.trigger import DEFAULT_CHANNEL
from outbox.schema.upgrading import upgrade_sql
from outbox.table import DEFAULT_TABLE, TableName

if TYPE_CHECKING:
    from outbox.schema.plan import UpgradeStep


async def create(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
) -> None:
    """Make the table, its indexes and its trigger where they are missing."""
    await _execute(session, Statement.of("create_table", create_sql(table_name, channel, notify=notify)))


def create_sync(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
) -> None:
    """Make the table, its indexes and its trigger where they are missing."""
    statement = Statement.of("create_table", create_sql(table_name, channel, notify=notify))
    _sync_driver(session).execute(session, statement, ())


async def upgrade(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
    lock_timeout: timedelta = LOCK_TIMEOUT,
    lock_attempts: int = LOCK_ATTEMPTS,
) -> None:
    """Bring an older table to the present, keeping every row; `upgrade_sql` says what it locks."""
    sql = upgrade_sql(
        table_name, channel, notify=notify, lock_timeout=lock_timeout, lock_attempts=lock_attempts
    )
    await _execute(session, Statement.of("upgrade_table", sql))


def upgrade_sync(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
    lock_timeout: timedelta = LOCK_TIMEOUT,
    lock_attempts: int = LOCK_ATTEMPTS,
) -> None:
    """Bring an older table to the present, keeping every row; `upgrade_sql` says what it locks."""
    sql = upgrade_sql(
        table_name, channel, notify=notify, lock_timeout=lock_timeout, lock_attempts=lock_attempts
    )
    statement = Statement.of("upgrade_table", sql)
    _sync_driver(session).execute(session, statement, ())


async def check(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
) -> list[Problem]:
    """Tell what is wrong with the table; nothing is where it will do."""
    # Imported here, as below: an application that only emits does not wait for what only a check needs.
    from outbox.schema.inspection import judged
    from outbox.schema.observation import OBSERVE

    rows = await _fetch(session, OBSERVE, (TableName.parse(table_name).sql,))
    return judged(rows, table_name, channel, notify=notify)


def check_sync(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
) -> list[Problem]:
    """Tell what is wrong with the table; nothing is where it will do."""
    from outbox.schema.inspection import judged
    from outbox.schema.observation import OBSERVE

    rows = _sync_driver(session).fetch(session, OBSERVE, (TableName.parse(table_name).sql,))
    return judged(rows, table_name, channel, notify=notify)


async def plan_upgrade(
    session: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
) -> "list[UpgradeStep]":
    """The statements of an upgrade with what each of them locks, to be run outside of a transaction.

    A `ValueError` if there is no table of that name.
    """
    from outbox.schema.inspection import Expected, problems
    from outbox.schema.observation import OBSERVE, ObservedTable
    from outbox.schema.plan import upgrade_plan

    expected = Expected.of(table_name, channel, notify=notify)
    rows = await _fetch(session, OBSERVE, (expected.table.sql,))
    observed = ObservedTable.read(rows[0][0]) if rows else None
    if observed is None or observed.kind not in ("r", "p"):
        raise ValueError(str(problems(observed, expected)[0]))
    return upgrade_plan(observed, expected, channel)


async def _fetch(session: Any, statement: Statement, args: tuple[str, ...]) -> list[Row]:
    driver = recognise(session)
    if driver.is_async:
        return await driver.fetch(session, statement, args)
    return driver.fetch(session, statement, args)


async def _execute(session: Any, statement: Statement) -> None:
    driver = recognise(session)
    if driver.is_async:
        await driver.execute(session, statement, ())
    else:
        driver.execute(session, statement, ())


def _sync_driver(session: Any) -> SyncDriver:
    driver = recognise(session)
    if driver.is_async:
        kind = type(session)
        raise TypeError(
            f"{kind.__module__}.{kind.__qualname__} has to be awaited; "
            "use create, upgrade or check, without _sync"
        )
    return driver
