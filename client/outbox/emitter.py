"""Emitting: one INSERT in the transaction that the application already has."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from outbox.autocreate import AutoCreate
from outbox.bulk import Bulk
from outbox.drivers import Driver, Statement, SyncDriver, recognise
from outbox.drivers.driver import Row
from outbox.inserts import Inserts
from outbox.message import (
    MAX_BODY_SIZE,
    Duration,
    Eta,
    MessageRow,
    OutboxMessage,
    check_text,
    expiration_seconds,
    row_of,
)
from outbox.table import TableName

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
    ) -> None:
        """Describe where messages go; nothing is opened, for `emit` works in the session that it is given.

        `db_engine` and `db_engine_url` are accepted for code that passes them, and not needed.
        """
        if db_engine is not None and db_engine_url is not None:
            raise ValueError("give db_engine or db_engine_url, not both")
        self._table = TableName.parse(table_name)
        self._inserts = Inserts.into(self._table)
        self._expiration = expiration_seconds(expiration)
        self._max_body_size = max_body_size
        self._autocreate = AutoCreate(self._table) if auto_create_table else None
        self._warned = False

    def _row(self, message: OutboxMessage, message_id: UUID) -> MessageRow:
        return row_of(
            message,
            str(message_id),
            default_expiration=self._expiration,
            max_body_size=self._max_body_size,
        )

    def _statement(self, row: MessageRow, replace: bool) -> Statement:
        if replace:
            if row.timer_id is None:
                raise ValueError("replace=True moves a pending timer: give its timer_id")
            return self._inserts.replacement
        return self._inserts.one if row.timer_id is None else self._inserts.timer

    def _bulk(self, messages: Sequence[OutboxMessage]) -> Bulk:
        ids = [uuid4() for _ in messages]
        rows = []
        for position, (message, message_id) in enumerate(zip(messages, ids, strict=True)):
            try:
                rows.append(self._row(message, message_id))
            except (TypeError, ValueError) as error:
                raise type(error)(f"message {position} of {len(messages)}: {error}") from error
        return Bulk(ids, rows)

    def _many(self, bulk: Bulk) -> Statement:
        return self._inserts.many_plain if bulk.is_plain else self._inserts.many

    def _emitted(self, driver: Driver, session: Any, row: MessageRow, count: int) -> bool:
        self._warn_outside_transaction(driver, session)
        if count:
            _log.info("emitted %s as %s", row.routing_key, row.message_id)
        return count > 0

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
        count = await _execute(driver, session, statement, row)
        return message_id if self._emitted(driver, session, row, count) else None

    async def bulk_emit(self, session: Any, messages: Sequence[OutboxMessage]) -> list[UUID | None]:
        """Write any number of messages with one statement, after all of them were found valid.

        Returns their ids, with None for each whose `timer_id` is already pending.
        """
        driver = recognise(session)
        bulk = self._bulk(messages)
        if not bulk.rows:
            return []
        await self._ensure_table(driver, session)
        inserted: list[Row] | None = None
        if bulk.has_timers:
            inserted = await _fetch(driver, session, self._inserts.many_timers, bulk.arrays)
        else:
            await _execute(driver, session, self._many(bulk), bulk.arrays)
        self._emitted_all(driver, session, bulk)
        return bulk.emitted(inserted)

    async def cancel_timer(self, session: Any, routing_key: str, timer_id: str) -> bool:
        """Take back a timer that has not been sent; tells whether there was one."""
        check_text("routing_key", routing_key)
        check_text("timer_id", timer_id, limit=None)
        driver = recognise(session)
        await self._ensure_table(driver, session)
        return await _execute(driver, session, self._inserts.cancellation, (routing_key, timer_id)) > 0

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
        count = driver.execute(session, statement, row)
        return message_id if self._emitted(driver, session, row, count) else None

    def bulk_emit(self, session: Any, messages: Sequence[OutboxMessage]) -> list[UUID | None]:
        """Write any number of messages with one statement, after all of them were found valid.

        Returns their ids, with None for each whose `timer_id` is already pending.
        """
        driver = _blocking(session)
        bulk = self._bulk(messages)
        if not bulk.rows:
            return []
        self._ensure_table(driver, session)
        inserted: list[Row] | None = None
        if bulk.has_timers:
            inserted = driver.fetch(session, self._inserts.many_timers, bulk.arrays)
        else:
            driver.execute(session, self._many(bulk), bulk.arrays)
        self._emitted_all(driver, session, bulk)
        return bulk.emitted(inserted)

    def cancel_timer(self, session: Any, routing_key: str, timer_id: str) -> bool:
        """Take back a timer that has not been sent; tells whether there was one."""
        check_text("routing_key", routing_key)
        check_text("timer_id", timer_id, limit=None)
        driver = _blocking(session)
        self._ensure_table(driver, session)
        return driver.execute(session, self._inserts.cancellation, (routing_key, timer_id)) > 0

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


def _blocking(session: Any) -> SyncDriver:
    driver = recognise(session)
    if driver.is_async:
        raise TypeError(f"{type(session).__name__} has to be awaited: emit through it with Emitter")
    return driver
