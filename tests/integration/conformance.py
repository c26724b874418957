"""An outbox in memory or a real one, behind the few calls that the conformance suite makes."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from outbox import Listener, wire
from outbox.testing import MemoryOutbox
from outbox.topology import dead_letter_queue
from tests.integration.relaying import Traffic, traffic_between, until
from tests.integration.working import Workshop, workshop_at

RETRY_DELAYS = (0.1, 0.1)
"""The retries of every listener without its own."""
_FENCE = "fence"


class Outbox(Protocol):
    """What the suite needs of an outbox."""

    def session(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """A session with the `transaction()` of asyncpg."""

    async def settle(self, ledger: Sequence[object], count: int) -> None:
        """Deliver what is due; a listener's ledger has exactly so many entries then."""

    async def dead_letters(self, queue: str, count: int) -> list[tuple[bytes, str]]:
        """The dead letters of a queue, which are so many: each body with the class of its error."""

    async def expect_pending(self, *routing_keys: str) -> None:
        """Fail unless the messages that are not sent have these routing keys, in the order of their emits."""


class InMemory:
    def __init__(self, listeners: Sequence[Listener[..., Any]]) -> None:
        self._outbox = MemoryOutbox(listeners, retry_delays=RETRY_DELAYS)

    def session(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return self._outbox.session()

    async def settle(self, ledger: Sequence[object], count: int) -> None:
        await self._outbox.drain()
        assert len(ledger) == count, ledger

    async def dead_letters(self, queue: str, count: int) -> list[tuple[bytes, str]]:
        letters = [letter for letter in self._outbox.dead_letters if letter.queue == queue]
        assert len(letters) == count
        return [(letter.message.raw, type(letter.error).__name__) for letter in letters]

    async def expect_pending(self, *routing_keys: str) -> None:
        # In the table a parked message stays.
        unsent = [*self._outbox.pending, *self._outbox.unroutable]
        found = [message.routing_key for message in self._outbox.messages if message in unsent]
        assert found == [*routing_keys]


class Real:
    def __init__(self, traffic: Traffic, workshop: Workshop, passed: list[object]) -> None:
        self._traffic = traffic
        self._workshop = workshop
        self._passed = passed

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        yield self._traffic.database

    async def settle(self, ledger: Sequence[object], count: int) -> None:
        await until(lambda: len(ledger) >= count, lambda: f"{count} entries, not {ledger}")
        # What was emitted before it and is due is published before it.
        fences = len(self._passed)
        await self._traffic.emit(_FENCE, {})
        await until(lambda: len(self._passed) > fences, "the fence")
        assert len(ledger) == count, ledger

    async def dead_letters(self, queue: str, count: int) -> list[tuple[bytes, str]]:
        letters = [await self._workshop.dead_letter(queue) for _ in range(count)]
        assert await self._workshop.depth(dead_letter_queue(queue)) == 0
        return [(letter.body, str(letter.headers[wire.ERROR_TYPE]).rpartition(".")[2]) for letter in letters]

    async def expect_pending(self, *routing_keys: str) -> None:
        # A listener may have a message before the relay has committed that it is sent.
        in_order = "pg_catalog.array_agg(routing_key ORDER BY id) IS NOT DISTINCT FROM $1::text[]"
        sql = f"SELECT {in_order} FROM outbox_table"
        wanted = [*routing_keys] or None
        await until(lambda: self._traffic.database.fetchval(sql, wanted), f"{wanted} in the table")


@contextlib.asynccontextmanager
async def real(
    postgres_url: str, rabbitmq_url: str, listeners: Sequence[Listener[..., Any]]
) -> AsyncIterator[Real]:
    """A table, a relay, a broker and a worker with these listeners."""
    passed: list[object] = []

    def fence(body: object) -> None:
        passed.append(body)

    async with (
        traffic_between(postgres_url, rabbitmq_url) as traffic,
        workshop_at(rabbitmq_url) as workshop,
    ):
        workshop.exchange_name = traffic.exchange_name
        await workshop.working(*listeners, Listener(_FENCE, fence, queue=_FENCE), retry_delays=RETRY_DELAYS)
        await traffic.relaying()
        yield Real(traffic, workshop, passed)
