"""What a command is about: a table, queues or an exchange, by URLs and names or through resources."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from outbox.schema import DEFAULT_CHANNEL
from outbox.table import TableName
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import broker, database_url, table_name
from outbox_cli.dead_letters import queues_of
from outbox_core.broker import Broker
from outbox_core.database import Database


@dataclass(frozen=True, slots=True)
class TableTarget:
    """An outbox table."""

    database: Database
    """Its database."""
    table: TableName
    """Its name."""
    channel: str
    """Where its triggers notify."""
    notify: bool = True
    """Whether it has triggers."""


@dataclass(frozen=True, slots=True)
class ExchangeTarget:
    """An exchange."""

    url: str | None = field(repr=False)
    """Its broker."""
    name: str
    """Its name."""


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """A listener's queues, on a broker that is connected."""

    broker: Broker
    """The broker."""
    queue: str
    """The listener's queue."""
    letters: str
    """Its dead-letter queue."""


async def table_target(
    place: Place, url: str | None, table: str, channel: str = DEFAULT_CHANNEL, *, notify: bool = True
) -> TableTarget:
    """The table by its URL, or that of an OutboxRelay."""
    if not place.in_cluster:
        name = table_name(table)
        return TableTarget(Database(database_url(url)), name, channel, notify)
    # Costs a second: only where it is used.
    from outbox_cli.cluster.resources import reached

    async with reached(place) as resources:
        relay = await resources.relay(place.relay)
        found = await resources.database(relay, place.typed("url", url))
    spec = relay.spec.database
    return TableTarget(
        found,
        table_name(place.typed("table", table) or spec.table),
        place.typed("channel", channel) or spec.channel,
        notify and spec.notify != "Never",
    )


async def exchange_target(place: Place, url: str | None, exchange: str) -> ExchangeTarget:
    """The exchange by its broker's URL, or that of an OutboxRelay."""
    if not place.in_cluster:
        return ExchangeTarget(url, exchange)
    from outbox_cli.cluster.resources import reached

    async with reached(place) as resources:
        relay = await resources.relay(place.relay)
        found = await resources.broker_url(relay, place.typed("url", url))
    return ExchangeTarget(found, place.typed("exchange", exchange) or relay.spec.exchange)


@asynccontextmanager
async def queue_targets(
    place: Place, url: str | None, names: Sequence[str]
) -> AsyncIterator[list[QueueTarget]]:
    """The queues of these names, or those of the OutboxListeners of these names, until the block ends."""
    if place.in_cluster:
        located = await _located(place, place.typed("url", url), names)
    else:
        located = [(url, *queues_of(name)) for name in names]
    # A queue and its dead-letter queue name the same.
    located = list(dict.fromkeys(located))
    async with AsyncExitStack() as stack:
        brokers: dict[str | None, Broker] = {}
        for where, _, _ in located:
            if where not in brokers:
                brokers[where] = await stack.enter_async_context(broker(where))
        yield [QueueTarget(brokers[where], queue, letters) for where, queue, letters in located]


async def _located(place: Place, url: str | None, names: Sequence[str]) -> list[tuple[str | None, str, str]]:
    """The broker's URL, the queue and the dead-letter queue of each OutboxListener."""
    from outbox_cli.cluster.resources import reached
    from outbox_operator import subscriptions

    found: list[tuple[str | None, str, str]] = []
    brokers: dict[str, str] = {}
    async with reached(place) as resources:
        for name in names:
            listener = await resources.listener(name)
            relay_name = listener.spec.relay_ref.name
            if relay_name not in brokers:
                relay = await resources.relay(relay_name)
                brokers[relay_name] = await resources.broker_url(relay, url)
            found.append((brokers[relay_name], *subscriptions.queues_of(listener)))
    return found
