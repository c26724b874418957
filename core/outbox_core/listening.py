"""LISTEN on a connection of its own, which proves again and again that it hears.

Behind a pooler in transaction mode LISTEN raises no error and hears nothing. So a notification is sent to
itself first, and then from time to time. Whoever relies on `is_alive` polls while it is False.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg

from outbox.schema import DEFAULT_CHANNEL, concerns
from outbox.table import DEFAULT_TABLE, TableName
from outbox_core.database import Database, DatabaseError
from outbox_core.echo import CONTROL_PREFIX, DeafError, Echo

_CLOSE_SECONDS = 2.0
_FAILURES = (
    DatabaseError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

_log = logging.getLogger("outbox.listening")


@dataclass(frozen=True)
class Pace:
    """How often, and for how long."""

    probe_every_seconds: float = 600.0
    """Between two proofs that notifications arrive. A relay asks more often whether the session is there."""
    heard_within_seconds: float = 5.0
    """How long one may take, and so may any other word from the server."""
    retry_seconds: float = 0.5
    """Before the first try to listen again; doubled with each further one, and jittered."""
    retry_limit_seconds: float = 30.0
    """The most that it grows to."""


class Listening:
    """A channel that is listened to, whatever happens to the connection."""

    def __init__(
        self,
        database: Database,
        on_notify: Callable[[str], None],
        *,
        table: str | TableName = DEFAULT_TABLE,
        channel: str = DEFAULT_CHANNEL,
        name: str = "outbox-listen",
        poll_seconds: float | None = None,
        pace: Pace = Pace(),
        on_control: Callable[[str], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_notify` gets each payload that concerns the table, and an empty one after each connect.

        The empty one, because notifications may have been missed. `poll_seconds` is what the caller does
        meanwhile: it is only mentioned in the log. `name` is what `pg_stat_activity` shows. `on_control` gets
        what relays tell each other, and `on_change` is called when `session` has changed.
        """
        self._database = database
        self._on_notify = on_notify
        self._table = TableName.parse(table)
        self._channel = channel
        self._name = name
        self._meanwhile = "polling" if poll_seconds is None else f"polling every {poll_seconds:g} s"
        self._pace = pace
        self._on_control = on_control
        self._on_change = on_change
        self._session: Any = None
        self._prepared: dict[str, Any] = {}
        self._asking = asyncio.Lock()
        self._is_known_dead = False
        self._echo = Echo(database, channel, f"{name}-probe", pace.heard_within_seconds)

    @property
    def is_alive(self) -> bool:
        """Whether notifications arrive, as far as the last probe knows."""
        return self._session is not None

    @property
    def session(self) -> Any:
        """The connection by which notifications arrive; another object after each loss, None meanwhile."""
        return self._session

    async def ask(self, sql: str, *arguments: Any) -> Any:
        """The first row of a statement on the session; None if that is lost, and its locks with it."""
        session = self._session
        if session is None:
            return None
        try:
            async with self._asking, asyncio.timeout(self._pace.heard_within_seconds):
                if sql not in self._prepared:
                    self._prepared[sql] = await session.prepare(sql)
                return await self._prepared[sql].fetchrow(*arguments)
        except _FAILURES as error:
            _log.debug("the listening connection does not answer: %s", error)
            session.terminate()
            return None

    async def _execute(self, connection: Any, sql: str) -> None:
        async with self._asking:
            await connection.execute(sql, timeout=self._pace.heard_within_seconds)

    async def run(self) -> None:
        """Listen until cancelled, and never give up."""
        delay = self._pace.retry_seconds
        while True:
            try:
                await self._listen()
            except _FAILURES as error:
                if self._session is not None:
                    delay = self._pace.retry_seconds
                self._bury(error)
            finally:
                self._end_session()
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
            delay = min(delay * 2, self._pace.retry_limit_seconds)

    async def _listen(self) -> None:
        """Listen on one connection for as long as it hears; raise when it does not."""
        lost = asyncio.Event()
        async with self._connected(lost) as connection:
            try:
                await self._echo.prove()
                if not lost.is_set():
                    self._revive(connection)
                while not await _is_set_within(self._pace.probe_every_seconds, lost):
                    await self._echo.prove(partial(self._execute, connection))
            except DeafError:
                # A session that ended meanwhile is not deaf, and needs another cure.
                if not lost.is_set():
                    raise
            raise ConnectionResetError("the connection was lost")

    @asynccontextmanager
    async def _connected(self, lost: asyncio.Event) -> AsyncIterator[Any]:
        connection = await self._database.connect(self._name, prepared=False)

        def lose(_: Any) -> None:
            lost.set()
            self._end_session()
            self._echo.let_go()

        try:
            connection.add_termination_listener(lose)
            async with asyncio.timeout(self._pace.heard_within_seconds):
                await connection.add_listener(self._channel, self._hear)
            yield connection
        finally:
            await self._close(connection)

    async def _close(self, connection: Any) -> None:
        with suppress(*_FAILURES):
            async with asyncio.timeout(_CLOSE_SECONDS):
                # A pooler hands the session to others, who must not get our notifications.
                await connection.remove_listener(self._channel, self._hear)
        with suppress(*_FAILURES):
            await connection.close(timeout=_CLOSE_SECONDS)

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload.startswith(CONTROL_PREFIX):
            self._on_control(payload)
        elif not self._echo.takes(payload) and self._concerns(payload):
            self._on_notify(payload)

    def _concerns(self, payload: str) -> bool:
        try:
            return concerns(payload, self._table)
        except ValueError:
            _log.debug("notification is not ours", extra={"channel": self._channel})
            return False

    def _end_session(self) -> None:
        if self._session is not None:
            self._session = None
            self._on_change()

    def _revive(self, connection: Any) -> None:
        again = " again" if self._is_known_dead else ""
        _log.info("LISTEN hears%s", again, extra={"channel": self._channel})
        self._session = connection
        self._prepared = {}
        self._is_known_dead = False
        self._on_change()
        self._on_notify("")

    def _bury(self, error: Exception) -> None:
        if self._is_known_dead:
            _log.debug("LISTEN is still dead: %s", error)
            return
        self._is_known_dead = True
        hint = (
            "; behind PgBouncer use session pooling or a direct URL" if isinstance(error, DeafError) else ""
        )
        _log.warning(
            "LISTEN is dead: %s; %s until it recovers%s",
            str(error) or "no answer in time",
            self._meanwhile,
            hint,
            extra={"channel": self._channel},
        )


async def _is_set_within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
