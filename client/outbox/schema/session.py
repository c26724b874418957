"""The table created, upgraded and checked through a session of any supported driver. Nothing here commits.

`create`, `upgrade` and `check` are awaited, and take a sync session too; `…_sync` is for plain code.
"""

from typing import Any

from outbox.drivers import Statement, SyncDriver, recognise
from outbox.schema.creation import create_sql
from outbox.schema.problem import Problem
from outbox.schema.trigger import DEFAULT_CHANNEL
from outbox.schema.upgrading import upgrade_sql
from outbox.table import DEFAULT_TABLE, TableName


async def create(
    session: Any, table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL
) -> None:
    """Make the table, its indexes and its trigger where they are missing."""
    await _execute(session, Statement.of("create_table", create_sql(table_name, channel)))


def create_sync(
    session: Any, table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL
) -> None:
    """Make the table, its indexes and its trigger where they are missing."""
    statement = Statement.of("create_table", create_sql(table_name, channel))
    _sync_driver(session).execute(session, statement, ())


async def upgrade(
    session: Any, table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL
) -> None:
    """Bring an older table to the present, keeping every row."""
    await _execute(session, Statement.of("upgrade_table", upgrade_sql(table_name, channel)))


def upgrade_sync(
    session: Any, table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL
) -> None:
    """Bring an older table to the present, keeping every row."""
    statement = Statement.of("upgrade_table", upgrade_sql(table_name, channel))
    _sync_driver(session).execute(session, statement, ())


async def check(
    session: Any, table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL
) -> list[Problem]:
    """Tell what is wrong with the table; nothing is where it will do."""
    # Imported here, as below: an application that only emits does not wait for what only a check needs.
    from outbox.schema.inspection import judged
    from outbox.schema.observation import OBSERVE

    driver = recognise(session)
    args = (TableName.parse(table_name).sql,)
    if driver.is_async:
        rows = await driver.fetch(session, OBSERVE, args)
    else:
        rows = driver.fetch(session, OBSERVE, args)
    return judged(rows, table_name, channel)


def check_sync(
    session: Any, table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL
) -> list[Problem]:
    """Tell what is wrong with the table; nothing is where it will do."""
    from outbox.schema.inspection import judged
    from outbox.schema.observation import OBSERVE

    rows = _sync_driver(session).fetch(session, OBSERVE, (TableName.parse(table_name).sql,))
    return judged(rows, table_name, channel)


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
