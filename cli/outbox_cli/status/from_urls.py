"""The picture of a table and a broker that are named by their URLs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg

from outbox.table import TableName
from outbox_cli.failures import CommandError, line_of
from outbox_cli.status.looking import QueueNames, look_at_queues, look_at_table
from outbox_cli.status.picture import Picture, QueueState, RelayState, TableState, TierState
from outbox_core.broker_errors import BrokerError
from outbox_core.database import Database, DatabaseError


@dataclass(frozen=True, slots=True)
class Urls:
    """Where to look; what is None is left out."""

    database: str | None = field(repr=False)
    """The database."""
    broker: str | None = field(repr=False)
    """The broker."""
    management: str | None = field(repr=False)
    """Its management API, where it is not at its usual port."""
    table: TableName
    """The table."""
    exchange: str
    """The exchange."""
    queues: Sequence[str] = ()
    """The listeners' queues; all of the exchange where none is named."""


async def picture_of_urls(urls: Urls) -> Picture:
    """Look at both: where one cannot be looked at, the other is still shown."""
    unseen: list[str] = []
    table = None
    queues: list[QueueState] = []
    tiers: list[TierState] = []
    try:
        table = await _table(urls)
    except (CommandError, DatabaseError, asyncpg.PostgresError, OSError) as error:
        unseen.append(line_of(error))
    try:
        queues, tiers = await _queues(urls)
    except (CommandError, BrokerError, OSError) as error:
        unseen.append(line_of(error))
    relays = (RelayState(urls.exchange, table),) if table else ()
    return Picture(relays, tuple(queues), tuple(tiers), unseen=tuple(unseen))


async def _table(urls: Urls) -> TableState | None:
    return await look_at_table(Database(urls.database), urls.table) if urls.database else None


async def _queues(urls: Urls) -> tuple[list[QueueState], list[TierState]]:
    if not urls.broker:
        return [], []
    if urls.queues:
        return await look_at_queues(urls.broker, QueueNames(tuple(urls.queues)))
    # Costs a second: only where it is used.
    from outbox_cli.status.discovery import discovered

    return await look_at_queues(urls.broker, await discovered(urls.broker, urls.management, urls.exchange))
