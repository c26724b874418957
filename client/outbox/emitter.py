"""Emitting: one INSERT in the transaction that the application already has."""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from outbox.autocreate import AutoCreate
from outbox.bulk import Bulk
from outbox.drivers import Driver, Statement, SyncDriver, recognise
from outbox.drivers.driver import Row
from outbox.headers import MAX_HEADERS_SIZE
from outbox.inserts import Inserts
from outbox.message import (
    MAX_BODY_SIZE,
    Duration,
    Eta,
    MessageRow,
    OutboxMessage,
    expiration_seconds,
    row_of,
)
from outbox.table import TableName
from outbox.text import checked_text

_log = logging.getLogger("outbox")


class AutocommitWarning(UserWarning):
    """A message was emitted outside of a transaction, so it is sent even if what follows fails."""


class _Emitting:
    """What both emitters know: the table, its statements, and how a message becomes a row."""

    def __init__(
        self,
        db_engine: Any = None,
        db_engine_url: str | None = None,
        *,
        table_name: str = "outbox_table",
        expiration: Duration | None = None,
        auto_create_table: bool = False,
        max_body_size: int = MAX_BODY_SIZE,
        max_headers_size: int = MAX_HEADERS_SIZE,
        lock_ordering_keys: bool = False,
    ) -> None:
        """Describe where messages go; nothing is opened, for `emit` works in the session that it is given.

        With `lock_ordering_keys`, transactions that emit the same `ordering_key` run one after the other, so
        that their messages leave in the order of the commits.

        `db_engine` and `db_engine_url` are accepted for code that passes them, and not needed.
        """
        if db_engine is not None and db_engine_url is not None:
            raise ValueError("give db_engine or db_engine_url, not both")
        self._table = TableName.parse(table_name)
        self._inserts = Inserts.into(self._table)
        self._expiration = expiration_seconds(expiration)
        self._max_body_size = max_body_size
        self._max_headers_size = max_headers_size
        self._lock_ordering_keys = lock_ordering_keys
        self._autocreate = AutoCreate(self._table) if auto_create_table else None
        self._warned = False

    def _row(self, message: OutboxMessage, message_id: UUID) -> MessageRow:
        return row_of(
            message,
            str(message_id),
            default_expiration=self._expiration,
            max_body_size=self._max_body_size,
            max_headers_size=self._max_headers_size,
        )

    def _statement(self, row: MessageRow, replace: bool) -> Statement:
        if replace:
            if row.timer_id is None:
                raise ValueError("replace=True moves a pending timer: give its timer_id")
            return self._inserts.replacement
        return self._inserts.one if row.timer_id is None else self._inserts.timer

    def _bulk(self, messages: Iterable[OutboxMessage]) -> Bulk:
        if not isinstance(messages, Iterable):
            raise TypeError(f"bulk_emit takes an iterable of OutboxMessage, got {type(messages).__name__!r}")
        given = [*messages]
        ids = [uuid4() for _ in given]
        rows = []
        for position, (message, message_id) in enumerate(zip(given, ids, strict=True)):
            place = f"message {position} of {len(given)}"
            if not isinstance(message, OutboxMessage):
                raise TypeError(f"{place} must be an OutboxMessage, got {type(message).__name__}")
            try:
                rows.append(self._row(message, message_id))
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{place}: {error}") from error
        return Bulk(ids, rows)

    def _many(self, bulk: Bulk) -> Statement:
        return self._inserts.many_plain if bulk.is_plain else self._inserts.many

    def _keys_to_lock(self, row: MessageRow) -> list[str]:
        return [row.ordering_key] if self._lock_ordering_keys and row.ordering_key is not None else []

    def _bulk_keys_to_lock(self, bulk: Bulk) -> list[str]:
        return bulk.ordering_keys if self._lock_ordering_keys else bulk.keys_to_lock

    def _emitted(self, driver: Driver, session: Any, row: MessageRow, is_inserted: bool) -> None:
        self._warn_outside_transaction(driver, session)
        if is_inserted:
            _log.info("emitted %s as %s", row.routing_key, row.message_id)

    def _emitted_all(self, driver: Driver, session: Any, bulk: Bulk) -> None:
        self._warn_outside_transaction(driver, session)
        _log.info("emitted %d messages", len(bulk.rows))

    def _warn_outside_transaction(self, driver: Driver, session: Any) -> None:
        if self._warned or not driver.autocommits(session):
            return
        self._warned = True
        warnings.warn(
            f"emitting into {self._table.sql} outside of a transaction: the message is committed by itself, "
            "apart from the data it speaks of; begin a transaction first",
            AutocommitWarning,
            stacklevel=4,
        )


class Emitter(_Emitting):
    """Emits messages through an asynchronous session; it never begins, commits or rolls back anything."""

    async def emit(
        self,
        session: Any,
        routing_key: str,
        body: Any,
        *,
        expiration: Duration | None = None,
        eta: Eta | None = None,
        headers: Mapping[str, Any] | None = None,
        ordering_key: str | None = None,
        timer_id: str | None = None,
        replace: bool = False,
        content_type: str | None = None,
    ) -> UUID | None:
        """Write a message in the session's transaction; it is sent when that commits.

        Returns the message's id, or None where a message with this `timer_id` is already pending.
        """
        driver = recognise(session)
        message_id = uuid4()
        row = self._row(
            OutboxMessage(routing_key, body, expiration, eta, headers, ordering_key, timer_id, content_type),
            message_id,
        )
        statement = self._statement(row, replace)
        await self._ensure_table(driver, session)
        await self._lock(driver, session, self._keys_to_lock(row))
        if row.timer_id is None:
            # A psycopg pipeline does not know the count yet, and says -1.
            is_inserted = await _execute(driver, session, statement, row) != 0
        else:
            is_inserted = bool(await _fetch(driver, session, statement, row))
        self._emitted(driver, session, row, is_inserted)
        return message_id if is_inserted else None

    async def bulk_emit(self, session: Any, messages: Iterable[OutboxMessage]) -> list[UUID | None]:
        """Write any number of messages with one statement, after all of them were found valid.

        Returns their ids, with None for each whose `timer_id` is already pending.
        """
        driver = recognise(session)
        bulk = self._bulk(messages)
        if not bulk.rows:
            return []
        await self._ensure_table(driver, session)
        await self._lock(driver, session, self._bulk_keys_to_lock(bulk))
        inserted: list[Row] | None = None
        if bulk.has_timers:
            inserted = await _fetch(driver, session, self._inserts.many_timers, bulk.arrays)
        else:
            await _execute(driver, session, self._many(bulk), bulk.arrays)
        self._emitted_all(driver, session, bulk)
        return bulk.emitted(inserted)

    async def cancel_timer(self, session: Any, routing_key: str, timer_id: str) -> bool:
        """Take back a timer that has not been sent; tells whether there was one."""
        timer = _timer(routing_key, timer_id)
        driver = recognise(session)
        await self._ensure_table(driver, session)
        return bool(await _fetch(driver, session, self._inserts.cancellation, timer))

    async def _lock(self, driver: Driver, session: Any, ordering_keys: list[str]) -> None:
        # A statement of its own: the INSERT has to draw its id when the lock is held.
        if ordering_keys:
            await _execute(driver, session, self._inserts.key_lock, (ordering_keys,))

    async def _ensure_table(self, driver: Driver, session: Any) -> None:
        auto = self._autocreate
        if auto is None or auto.settled:
            return
        [[state]] = await _fetch(driver, session, auto.probe, auto.probe_args)
        if auto.must_create(state):
            await _execute(driver, session, auto.creation, ())


class SyncEmitter(_Emitting):
    """Emits messages through a session whose calls block; it never begins, commits or rolls back anything."""

    def emit(
        self,
        session: Any,
        routing_key: str,
        body: Any,
        *,
        expiration: Duration | None = None,
        eta: Eta | None = None,
        headers: Mapping[str, Any] | None = None,
        ordering_key: str | None = None,
        timer_id: str | None = None,
        replace: bool = False,
        content_type: str | None = None,
    ) -> UUID | None:
        """Write a message in the session's transaction; it is sent when that commits.

        Returns the message's id, or None where a message with this `timer_id` is already pending.
        """
        driver = _blocking(session)
        message_id = uuid4()
        row = self._row(
            OutboxMessage(routing_key, body, expiration, eta, headers, ordering_key, timer_id, content_type),
            message_id,
        )
        statement = self._statement(row, replace)
        self._ensure_table(driver, session)
        self._lock(driver, session, self._keys_to_lock(row))
        if row.timer_id is None:
            # A psycopg pipeline does not know the count yet, and says -1.
            is_inserted = driver.execute(session, statement, row) != 0
        else:
            is_inserted = bool(driver.fetch(session, statement, row))
        self._emitted(driver, session, row, is_inserted)
        return message_id if is_inserted else None

    def bulk_emit(self, session: Any, messages: Iterable[OutboxMessage]) -> list[UUID | None]:
        """Write any number of messages with one statement, after all of them were found valid.

        Returns their ids, with None for each whose `timer_id` is already pending.
        """
        driver = _blocking(session)
        bulk = self._bulk(messages)
        if not bulk.rows:
            return []
        self._ensure_table(driver, session)
        self._lock(driver, session, self._bulk_keys_to_lock(bulk))
        inserted: list[Row] | None = None
        if bulk.has_timers:
            inserted = driver.fetch(session, self._inserts.many_timers, bulk.arrays)
        else:
            driver.execute(session, self._many(bulk), bulk.arrays)
        self._emitted_all(driver, session, bulk)
        return bulk.emitted(inserted)

    def cancel_timer(self, session: Any, routing_key: str, timer_id: str) -> bool:
        """Take back a timer that has not been sent; tells whether there was one."""
        timer = _timer(routing_key, timer_id)
        driver = _blocking(session)
        self._ensure_table(driver, session)
        return bool(driver.fetch(session, self._inserts.cancellation, timer))

    def _lock(self, driver: SyncDriver, session: Any, ordering_keys: list[str]) -> None:
        if ordering_keys:
            driver.execute(session, self._inserts.key_lock, (ordering_keys,))

    def _ensure_table(self, driver: SyncDriver, session: Any) -> None:
        auto = self._autocreate
        if auto is None or auto.settled:
            return
        [[state]] = driver.fetch(session, auto.probe, auto.probe_args)
        if auto.must_create(state):
            driver.execute(session, auto.creation, ())


async def _execute(driver: Driver, session: Any, statement: Statement, args: Sequence[Any]) -> int:
    if driver.is_async:
        return await driver.execute(session, statement, args)
    return driver.execute(session, statement, args)


async def _fetch(driver: Driver, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
    if driver.is_async:
        return await driver.fetch(session, statement, args)
    return driver.fetch(session, statement, args)


def _timer(routing_key: str, timer_id: str) -> tuple[str, str]:
    # Any length: a timer that was set before there was a limit can be cancelled.
    return checked_text("routing_key", routing_key), checked_text("timer_id", timer_id, limit=None)


def _blocking(session: Any) -> SyncDriver:
    driver = recognise(session)
    if driver.is_async:
        raise TypeError(f"{type(session).__name__} has to be awaited: emit through it with Emitter")
    return driver
