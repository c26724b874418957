"""A bounded set of asyncpg connections, opened when they are needed and kept for the next."""

import asyncio
import logging
from typing import Any

from outbox_core.database import CONNECT_SECONDS, Database

_log = logging.getLogger("outbox.database")


class Connections:
    """At most `size` connections to one database; whoever comes when all are lent waits for one."""

    def __init__(self, database: Database, size: int, name: str, longest_seconds: float | None) -> None:
        """`longest_seconds` is how long a transaction may be idle, where the URL does not say it."""
        if size < 1:
            raise ValueError(f"size {size}: there must be at least one connection")
        self._database = database
        self._name = name
        self._longest_seconds = longest_seconds
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._is_closed = False

    async def take(self) -> Any:
        """A connection, to be given back; a `DatabaseError` where none can be had."""
        await self._free.acquire()
        try:
            return self._reused() or await self._opened()
        except BaseException:
            self._free.release()
            raise

    def give_back(self, connection: Any) -> None:
        """Keep the connection for the next; one that is broken, or still in a transaction, is closed."""
        if self._is_closed or connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)
        self._free.release()

    def drop(self, connection: Any) -> None:
        """Close the connection, and with it whatever is under way."""
        connection.terminate()
        self._free.release()

    async def aclose(self) -> None:
        """Close those that are not lent; the others are closed when they are given back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=CONNECT_SECONDS)
            except OSError:  # a server that does not answer; asyncpg has given the connection up
                _log.debug("%s did not close a connection in time", self._database.where)

    def _reused(self) -> Any:
        # The one that was used last: its caches are warm, and the others may be closed by the server.
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def _opened(self) -> Any:
        connection = await self._database.connect(self._name)
        await limit_idling(connection, self._database, self._longest_seconds)
        return connection


async def limit_idling(connection: Any, database: Database, longest_seconds: float | None) -> None:
    """Have the server end every transaction of a process that is frozen.

    A pooler would hand the limit on to others: behind one each transaction has to set its own.
    """
    if longest_seconds is None or database.pooled:
        return
    try:
        await connection.execute(idle_limit(longest_seconds, is_local=False), timeout=CONNECT_SECONDS)
    except BaseException:
        connection.terminate()
        raise


def idle_limit(seconds: float, *, is_local: bool) -> str:
    """SQL that limits how long a transaction may be idle, unless the URL or the role has a limit already.

    `is_local` is for the transaction that is open, and otherwise it is for all of the session.
    """
    setting = "'idle_in_transaction_session_timeout'"
    return (
        f"SELECT pg_catalog.set_config({setting}, '{round(seconds * 1000)}', {is_local}) "
        f"WHERE pg_catalog.current_setting({setting}) = '0'"
    )
