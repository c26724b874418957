"""The picture of the OutboxRelays and OutboxListeners of a cluster.

What the operator last wrote into their status is known from anywhere. Where the Secrets may be read and the
servers be reached, they are looked at as they are now.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import asyncpg

from outbox.table import TableName
from outbox.topology import tier_name
from outbox_cli.cluster.place import Place
from outbox_cli.cluster.resources import Resources, reached
from outbox_cli.failures import CommandError, line_of
from outbox_cli.status.looking import QueueNames, look_at_queues, look_at_table
from outbox_cli.status.picture import Picture, QueueState, TableState, TierState
from outbox_cli.status.reported import queue_state, relay_state
from outbox_core.broker_errors import BrokerError
from outbox_core.database import DatabaseError
from outbox_operator.cluster.errors import ClusterError
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of

_RELAYS_AT_ONCE = 8
_NOT_SEEN = (
    CommandError,
    ClusterError,
    DatabaseError,
    BrokerError,
    asyncpg.PostgresError,
    OSError,
)
"""Why a server could not be looked at."""


@dataclass(frozen=True, slots=True)
class _Live:
    """What a look at the servers of one relay found."""

    table: TableState | None = None
    queues: dict[str, QueueState] = field(default_factory=dict)
    tiers: tuple[TierState, ...] = ()
    notes: tuple[str, ...] = ()


async def picture_of_cluster(
    place: Place, database_url: str | None = None, broker_url: str | None = None
) -> Picture:
    """All relays and listeners of a namespace, or of all of them; URLs are where ports are forwarded to."""
    turns = asyncio.Semaphore(_RELAYS_AT_ONCE)
    async with reached(place) as resources:
        relays = await resources.relays(everywhere=place.everywhere)
        listeners = await resources.listeners(everywhere=place.everywhere)

        async def live(relay: OutboxRelay) -> _Live:
            async with turns:
                own = [each for each in listeners if _relay_path(each) == relay.metadata.path]
                return await _live(resources, relay, own, database_url, broker_url)

        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(live(relay)) for relay in relays]
    found = {relay.metadata.path: look.result() for relay, look in zip(relays, looks, strict=True)}
    nothing, now = _Live(), datetime.now(UTC)
    return Picture(
        tuple(relay_state(relay, found[relay.metadata.path].table, now) for relay in relays),
        tuple(
            queue_state(each, found.get(_relay_path(each), nothing).queues.get(queue_of(each)))
            for each in listeners
        ),
        tuple(tier for look in found.values() for tier in look.tiers),
        tuple(note for look in found.values() for note in look.notes),
        tuple(resources.unreadable),
    )


async def _live(
    resources: Resources,
    relay: OutboxRelay,
    listeners: Sequence[OutboxListener],
    database_url: str | None,
    broker_url: str | None,
) -> _Live:
    path, notes = relay.metadata.path, list[str]()
    table, queues, tiers = None, list[QueueState](), list[TierState]()
    try:
        database = await resources.database(relay, database_url)
        table = await look_at_table(database, TableName.parse(relay.spec.database.table))
    except _NOT_SEEN as error:
        notes.append(_note(path, "table is shown as the operator last saw it", error))
    try:
        url = await resources.broker_url(relay, broker_url)
        queues, tiers = await look_at_queues(url, _names(relay, listeners))
    except _NOT_SEEN as error:
        notes.append(_note(path, "queues are shown as the operator last saw them", error))
    return _Live(
        table,
        {each.queue: each for each in queues},
        tuple(replace(each, relay=path) for each in tiers),
        tuple(notes),
    )


def _note(path: str, what: str, error: BaseException) -> str:
    return f"OutboxRelay {path}: its {what}, since {line_of(error)}"


def _relay_path(listener: OutboxListener) -> str:
    return f"{listener.metadata.namespace}/{listener.spec.relay_ref.name}"


def _names(relay: OutboxRelay, listeners: Sequence[OutboxListener]) -> QueueNames:
    delays = {delay for each in listeners if not each.spec.ordered for delay in each.spec.retry_delays}
    return QueueNames(
        tuple(dict.fromkeys(map(queue_of, listeners))),
        tuple(tier_name(relay.spec.exchange, delay) for delay in sorted(delays)),
    )
