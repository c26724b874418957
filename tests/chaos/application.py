"""The application of a chaos test: it emits, and remembers what it has committed."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg

from outbox import Emitter, OutboxMessage
from tests.chaos.ledger import Ledger
from tests.chaos.waiting import POLL_SECONDS

_TRICKLE_SECONDS = 0.2
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class Application:
    """Writes orders, each with its message in the same transaction, and rolls every fifth one back.

    The orders are the truth about a COMMIT that was not answered: where the order is, its message comes.
    """

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        *,
        keys: int = 0,
        routing_keys: Sequence[str] = ("order.placed",),
        body_size: int = 0,
        transaction_size: int = 10,
    ) -> None:
        """With `keys`, that many ordering keys take turns, and so do the routing keys."""
        self._url = url
        self._ledger = ledger
        self._keys = [f"key-{number:02}" for number in range(keys)]
        self._routing_keys = routing_keys
        self._padding = "." * body_size
        self._transaction_size = transaction_size
        self._emitter = Emitter()
        self._turn = 0

    async def run(self, stop: asyncio.Event, limit: int, pause_seconds: float) -> None:
        """Emit until asked to stop, whatever becomes of the database; after `limit` messages a trickle."""
        while not stop.is_set():
            with suppress(*_LOST):
                connection = await asyncpg.connect(self._url, timeout=5)
                try:
                    while not stop.is_set():
                        await self.transact(connection)
                        is_enough = len(self._ledger.committed) >= limit
                        await asyncio.sleep(_TRICKLE_SECONDS if is_enough else pause_seconds)
                finally:
                    connection.terminate()
            await asyncio.sleep(POLL_SECONDS)

    async def emit(self, count: int) -> None:
        """Commit this many messages, or up to the size of a transaction more."""
        connection = await asyncpg.connect(self._url)
        try:
            target = len(self._ledger.committed) + count
            while len(self._ledger.committed) < target:
                await self.transact(connection)
        finally:
            await connection.close()

    async def transact(self, connection: asyncpg.Connection) -> None:
        """One transaction."""
        self._turn += 1
        messages = [self._message(number) for number in range(self._transaction_size)]
        # Until COMMIT is sent, nothing that goes wrong can have committed anything.
        transaction = connection.transaction()
        await transaction.start()
        emitted = await self._emitter.bulk_emit(connection, messages)
        ids = {known: message.ordering_key for known, message in zip(emitted, messages, strict=True) if known}
        await connection.execute("INSERT INTO orders SELECT unnest($1::uuid[])", list(ids))
        if self._turn % 5 == 0:
            self._ledger.rolled_back |= ids.keys()
            await transaction.rollback()
            return
        self._ledger.unknown |= ids
        await transaction.commit()
        for known, key in ids.items():
            del self._ledger.unknown[known]
            self._ledger.committed[known] = key

    def _message(self, number: int) -> OutboxMessage:
        count = self._turn * 7 + number
        key = self._keys[count % len(self._keys)] if self._keys else None
        routing_key = self._routing_keys[count % len(self._routing_keys)]
        body = {"turn": self._turn, "number": number, "padding": self._padding}
        return OutboxMessage(routing_key, body, ordering_key=key)
