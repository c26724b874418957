"""The stage of a worker's chaos test: listeners in processes, behind an application and its relay."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import aio_pika
import asyncpg
from aio_pika.abc import AbstractExchange
from pamqp.commands import Basic

from outbox import wire
from outbox.topology import dead_letter_queue, tier_name
from tests.chaos.forked import Forked
from tests.chaos.journal import Call, Journal
from tests.chaos.ledger import Ledger
from tests.chaos.listeners import FOLLOW_UP, MARKER, TOPIC
from tests.chaos.process import Process
from tests.chaos.trouble import DELAYS, always_fails
from tests.chaos.waiting import eventually
from tests.chaos.world import EXCHANGE, World

FOLLOW_UPS = "follow-ups"
_EFFECTS = "CREATE TABLE effects (id bigserial, listener text, message_id uuid, follow_up uuid)"
_LIMIT = "delivery_limit"
"""What the broker says of a message that it has handed out too often to consumers that died."""
TIERS = tuple(tier_name(EXCHANGE, timedelta(seconds=delay)) for delay in DELAYS)


@dataclass
class Workplace:
    """Workers on a world, and what their listeners have done.

    What a listener has handled is in the table of effects, and each of its calls in the journal.
    """

    world: World
    listeners: Sequence[str]
    """Those of `tests.chaos.listeners` that work here; each has a queue of its name."""
    trouble: bool = False
    """Messages fail as their ids say."""
    most_seconds: float = 0.02
    """How long a listener takes at most."""
    database_options: str = ""
    """What the workers' URL of the database has behind the question mark."""
    broker_options: str = ""
    """The same for that of the broker."""
    workers: list[Process] = field(default_factory=list)
    """Every worker that was ever started."""
    follow_ups: Ledger = field(default_factory=Ledger)
    """What the exactly-once listener emits, and what of it arrives."""
    kills_many: bool = False
    """So many workers die that the broker's delivery limit may be reached, which is no fault of theirs."""
    limited: int = 0
    """How many messages the broker has given up for that."""
    relayed_twice: int = 0
    """How many messages the relay may have sent twice, because of what was done to it."""

    def __post_init__(self) -> None:
        self.journal = Journal(self.world.folder / "journal")
        self._database: asyncpg.Connection | None = None

    async def prepare(self) -> None:
        """Make the table, and the queue of follow-ups with its consumer."""
        async with self.world.database() as database:
            await database.execute(_EFFECTS)
        await self.world.bind(FOLLOW_UPS, FOLLOW_UP)
        await self.world.consume(FOLLOW_UPS, self.follow_ups)

    # -- workers

    async def start(self, **settings: object) -> Process:
        """A worker that is ready; the settings are those of the worker's `Settings`."""
        worker = self.launch(**settings)
        await worker.ready()
        return worker

    def launch(self, *program: str, **settings: object) -> Process:
        """A worker that may not be ready yet; a `program` other than the usual takes its listeners."""
        variables = {
            "CHAOS_JOURNAL": str(self.world.folder / "journal"),
            "CHAOS_MOST_SECONDS": str(self.most_seconds),
            "OUTBOX_DATABASE_URL": f"{self.world.postgres_url}?{self.database_options}",
            "OUTBOX_BROKER_URL": f"{self.world.rabbitmq_url}?{self.broker_options}",
            "OUTBOX_AUTO_CREATE_TABLE": "true",
            "OUTBOX_LOG_LEVEL": "WARNING",
            # Each failure that was asked for would be a traceback.
            **({"CHAOS_TROUBLE": "yes", "OUTBOX_LOG_LEVEL": "ERROR"} if self.trouble else {}),
            **{f"OUTBOX_{name.upper()}": str(value) for name, value in settings.items()},
        }
        targets = [f"tests.chaos.listeners:{name}" for name in self.listeners]
        log = self.world.folder / f"worker-{len(self.workers)}.log"
        worker = Forked([*(program or ("outbox_worker",)), *targets], variables, log)
        self.workers.append(worker)
        return worker

    async def end(self) -> None:
        """Kill what still runs, and show what it said."""
        if self._database is not None:
            self._database.terminate()
        for number, worker in enumerate(self.workers):
            if worker.is_running:
                worker.kill()
            if said := worker.log[-2000:]:
                print(f"--- the end of the log of worker {number}:\n{said}")  # noqa: T201 - shown where a test fails

    # -- what was done

    def calls(self, listener: str) -> list[Call]:
        """The calls of a listener, oldest first."""
        return [call for call in self.journal.calls if call.listener == listener]

    async def handled(self, listener: str) -> Counter[UUID]:
        """How often a listener has handled each message."""
        rows = await self._fetch(
            "SELECT message_id, count(*) FROM effects WHERE listener = $1 GROUP BY message_id", listener
        )
        return Counter({row["message_id"]: row["count"] for row in rows})

    async def counts(self) -> Mapping[str, int]:
        """How many messages each listener has handled."""
        rows = await self._fetch(
            "SELECT listener, count(DISTINCT message_id) AS count FROM effects GROUP BY listener"
        )
        found = {row["listener"]: row["count"] for row in rows}
        return {listener: found.get(listener, 0) for listener in self.listeners}

    async def _fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        # One connection for all the looks of a test, as long as the server lets us have it.
        if self._database is None or self._database.is_closed():
            self._database = await asyncpg.connect(self.world.postgres_url)
        rows: list[asyncpg.Record] = await self._database.fetch(query, *arguments)
        return rows

    async def more_handled(self, count: int = 1) -> float:
        """Wait until each listener has handled so many further messages; how many seconds that took."""
        before = await self.counts()

        async def have_been() -> bool:
            now = await self.counts()
            return all(now[listener] >= before[listener] + count for listener in self.listeners)

        return await eventually(f"each listener has handled {count} further messages", have_been)

    async def backlog_is_below(self, count: int) -> None:
        """Wait until no listener has more messages than this before it."""

        async def is_below() -> bool:
            return len(self.expected(to_fail=False)) - min((await self.counts()).values()) < count

        await eventually(f"fewer than {count} messages are before each listener", is_below)

    async def are_handled(self, calls: Collection[Call]) -> float:
        """Wait until all of these have come to their effect, but for what always fails; how many seconds."""
        wanted = {(call.listener, call.message_id) for call in calls if not self._fails(call.message_id)}

        async def have_been() -> bool:
            rows = await self._fetch("SELECT DISTINCT listener, message_id FROM effects")
            return wanted <= {(row["listener"], row["message_id"]) for row in rows}

        return await eventually(f"the {len(wanted)} messages that were begun are handled", have_been)

    def expected(self, *, to_fail: bool) -> set[UUID]:
        """The messages that were committed and are to be handled in the end, or else to be dead letters."""
        return {known for known in self.world.ledger.committed if self._fails(known) is to_fail}

    def _fails(self, message_id: UUID) -> bool:
        return self.trouble and always_fails(message_id)

    # -- queues

    async def depth(self, queue: str) -> int:
        """How many messages wait in a queue."""
        async with self.world.channel() as channel:
            declared = await channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def dead_letters(self, listener: str) -> dict[UUID, set[str]]:
        """Take all dead letters of a listener: their ids, and the errors or the broker's reasons."""
        taken: defaultdict[UUID, set[str]] = defaultdict(set)
        async with self.world.channel() as channel:
            queue = await channel.get_queue(dead_letter_queue(listener))
            while (letter := await queue.get(fail=False, no_ack=True)) is not None:
                reason = letter.headers.get(wire.ERROR_TYPE) or letter.headers.get("x-first-death-reason")
                taken[UUID(letter.message_id)].add(str(reason))
        return dict(taken)

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[Callable[[UUID], Awaitable[None]]]:
        """Publishes messages as a relay would, one after the other."""
        async with self.world.channel() as channel:
            exchange = await channel.get_exchange(EXCHANGE)

            async def send(message_id: UUID) -> None:
                await _confirmed(exchange, _message(message_id), TOPIC)

            yield send

    async def publish(self, message_id: UUID) -> None:
        """Publish one message as a relay would."""
        async with self.publishing() as send:
            await send(message_id)

    async def _mark(self, exchange_name: str, markers: Mapping[str, UUID]) -> None:
        """Publish a marker for each listener's queue."""
        async with self.world.channel() as channel:
            exchange = channel.default_exchange
            if exchange_name:
                exchange = await channel.get_exchange(exchange_name)
            for listener, marker in markers.items():
                await _confirmed(exchange, _message(marker, {wire.ROUTING_KEY: MARKER}), listener)

    async def flush(self) -> None:
        """Wait until the listeners have begun all that is in their queues, after all that is in the tiers."""
        for exchange in (*(TIERS if self._have_tiers else ()), ""):
            markers = {listener: uuid4() for listener in self.listeners}
            await self._mark(exchange, markers)
            awaited = {(f"{MARKER}-{listener}", marker) for listener, marker in markers.items()}

            async def have_come(awaited: Collection[tuple[str, UUID]] = awaited) -> bool:
                return {(call.listener, call.message_id) for call in self.journal.calls} >= set(awaited)

            await eventually(f"markers have come by {exchange or 'their queues'}", have_come)

    @property
    def _have_tiers(self) -> bool:
        return "ordered" not in self.listeners

    # -- the end

    async def everything_is_handled(self) -> float:
        """Wait until nothing that was committed is missing; how many seconds that took."""
        await self.world.resolve()
        wanted, failing = len(self.expected(to_fail=False)), len(self.expected(to_fail=True))

        async def is_handled() -> bool:
            counts = await self.counts()
            if min(counts.values()) < wanted and not self.kills_many:
                return False
            depths = {each: await self.depth(dead_letter_queue(each)) for each in self.listeners}
            # What the broker has given up is a dead letter, and may have been handled or not.
            return all(
                depths[each] >= failing and counts[each] + depths[each] >= wanted + failing
                for each in self.listeners
            )

        what = f"each listener has handled {wanted} messages and given up {failing}"
        try:
            return await eventually(what, is_handled)
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self.counts()}; {await self._contents()}") from None

    async def _contents(self) -> dict[str, dict[str, object]]:
        """What the broker says of each queue's messages, for who reads of a failure."""
        queues = await self.world.manage("GET", f"queues/{self.world.vhost}")
        return {
            queue["name"]: {name: count for name, count in queue.items() if name.startswith("message")}
            for queue in queues
        }

    async def close_the_books(self) -> dict[str, int]:
        """Nothing is lost, nothing was made up, nothing is left; how many duplicates each listener had.

        What the exactly-once listener did was done once, and each of its follow-ups has arrived once.
        """
        await self.everything_is_handled()
        await self.leave()
        wanted, failing = self.expected(to_fail=False), self.expected(to_fail=True)
        duplicates = {}
        for listener in self.listeners:
            handled = await self.handled(listener)
            letters = await self.dead_letters(listener)
            limited = {known for known, reasons in letters.items() if _LIMIT in reasons}
            self.limited += len(limited)
            assert wanted - handled.keys() - limited == set(), f"{listener} has lost messages"
            assert failing - letters.keys() == set(), f"{listener} has lost dead letters"
            assert handled.keys() - wanted == set(), f"{listener} has handled what was not to be"
            unexpected = [letters[known] for known in letters.keys() - failing - limited]
            assert unexpected == [], f"{listener} has given up what was to succeed: {unexpected}"
            duplicates[listener] = handled.total() - len(handled)
        assert self.limited == 0 or self.kills_many, f"the broker has given up {self.limited} messages"
        if "once" in self.listeners:
            assert duplicates["once"] == 0
            await self._compare_follow_ups()
        return duplicates

    async def leave(self) -> None:
        """Ask all workers to leave when they are done, and see that they have left nothing."""

        async def nothing_is_left() -> bool:
            await self.flush()
            for worker in [worker for worker in self.workers if worker.is_running]:
                assert await worker.terminate() == 0, worker.log
            queues = (*self.listeners, *(TIERS if self._have_tiers else ()))
            if not any([await self.depth(queue) for queue in queues]):
                return True
            await self.start()
            return False

        await eventually("the queues are empty", nothing_is_left)

    async def _compare_follow_ups(self) -> None:
        rows = await self._fetch("SELECT follow_up FROM effects WHERE listener = 'once'")
        self.follow_ups.committed = {row["follow_up"]: None for row in rows}

        async def have_arrived() -> bool:
            return not self.follow_ups.missing()

        await eventually("all follow-ups have arrived", have_arrived)
        for relay in self.world.relays:
            if relay.is_running:
                assert await relay.terminate() == 0, relay.log
        await self.world.flush()
        assert self.follow_ups.uncalled_for() == set()
        assert self.follow_ups.duplicates().total() <= self.relayed_twice


def _message(message_id: UUID, headers: Mapping[str, str] | None = None) -> aio_pika.Message:
    return aio_pika.Message(
        b"{}",
        message_id=str(message_id),
        headers={**(headers or {})},
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


async def _confirmed(exchange: AbstractExchange, message: aio_pika.Message, routing_key: str) -> None:
    """Publish, and see that a queue has it."""
    answer = await exchange.publish(message, routing_key)
    assert isinstance(answer, Basic.Ack), f"exchange {exchange.name} has no queue for {routing_key}"
