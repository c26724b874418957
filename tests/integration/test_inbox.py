"""A message's note in the inbox and what its listener does, in one transaction on a real Postgres."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import Emitter, Listener, listen, schema
from outbox_core.database import AuthenticationError, Database, UnreachableError
from outbox_worker import asyncpg_transactions, inbox, sqlalchemy_transactions
from outbox_worker.connections import Connections
from outbox_worker.errors import HandlerTimeoutError, TransactionAbortedError, TransactionEndedError
from outbox_worker.inbox import Inbox
from outbox_worker.transactions import (
    DatabaseAwayError,
    Entry,
    MessageBusyError,
    Transactions,
    transactions_of,
)
from tests.integration.pgbouncer import PgBouncer
from tests.integration.wire import counted

QUEUE = "shop.mail"
DEADLINE_SECONDS = 60

Way = Literal["url", "url, session", "engine", "engine, session", "engine on psycopg, session"]
WAYS: tuple[Way, ...] = ("url", "url, session", "engine", "engine, session", "engine on psycopg, session")


class ListenerFailedError(Exception):
    pass


@dataclass(frozen=True)
class Door:
    """Transactions, and which of their two doors a listener asks for."""

    transactions: Transactions
    session: bool

    def begin(self, message_id: str, queue: str = QUEUE) -> Any:
        return self.transactions.begin(queue, message_id, session=self.session)


def given(entry: Entry) -> Any:
    """What a listener is given."""
    return entry.session if entry.connection is None else entry.connection


async def execute(entry: Entry, sql: str) -> None:
    if entry.connection is not None:
        await entry.connection.execute(sql)
    else:
        await (await entry.session.connection()).exec_driver_sql(sql)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A look at the database from outside, with an inbox, an outbox and a table of the application's."""
    connection = await asyncpg.connect(postgres_url)
    await Inbox().create(connection)
    await schema.create(connection)
    await connection.execute("CREATE TABLE mail (text text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    yield connection
    await connection.close()


@pytest.fixture(params=WAYS)
async def door(
    request: pytest.FixtureRequest, postgres_url: str, database: asyncpg.Connection
) -> AsyncIterator[Door]:
    way: Way = request.param
    async with contextlib.AsyncExitStack() as stack:
        if way.startswith("url"):
            transactions = transactions_of(db_engine_url=postgres_url, size=2)
        else:
            dialect = "postgresql+psycopg" if "psycopg" in way else "postgresql+asyncpg"
            engine = create_async_engine(postgres_url.replace("postgresql", dialect, 1))
            stack.push_async_callback(engine.dispose)
            transactions = transactions_of(db_engine=engine)
        stack.push_async_callback(transactions.aclose)
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield Door(transactions, way.endswith("session"))


async def test_a_frozen_server_does_not_keep_a_failed_attempt(
    postgres_url: str, database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncpg_transactions, "END_SECONDS", 1.0)
    transactions = transactions_of(db_engine_url=postgres_url, size=2)
    pid = 0
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises((TimeoutError, DatabaseAwayError)):
                async with transactions.begin(QUEUE, "1", session=False) as entry:
                    pid = await entry.connection.fetchval("SELECT pg_backend_pid()")
                    os.kill(pid, signal.SIGSTOP)
                    # asyncpg asks the server to cancel it, and waits for that before the next statement.
                    async with asyncio.timeout(0.5):
                        await entry.connection.execute("SELECT 1")
            assert not await transactions.was_handled(QUEUE, "1")
    finally:
        os.kill(pid, signal.SIGCONT)
        await transactions.aclose()


@contextlib.asynccontextmanager
async def freezing(database: asyncpg.Connection) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A function that stops the processes of all other sessions of this database, which go on in the end."""
    pids: list[int] = []

    async def freeze() -> None:
        rows = await database.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        pids.extend(row["pid"] for row in rows)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    try:
        yield freeze
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("moment", ["idle", "before the commit", "after an error"])
async def test_a_frozen_session_is_given_up_and_replaced(
    door: Door, database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    for module in (asyncpg_transactions, sqlalchemy_transactions):
        monkeypatch.setattr(module, "END_SECONDS", 1.0)

    async def is_handled() -> bool:
        with contextlib.suppress(DatabaseAwayError):
            async with door.begin("b"):
                return True
        return False

    async with freezing(database) as freeze:
        with contextlib.suppress(DatabaseAwayError, ZeroDivisionError):
            async with door.begin("a") as entry:
                await execute(entry, "INSERT INTO mail VALUES ('hello')")
                if moment != "idle":
                    await freeze()
                if moment == "after an error":
                    raise ZeroDivisionError
        if moment == "idle":
            await freeze()
        await until("another session is used", is_handled)


@pytest.mark.parametrize("dialect", ["postgresql+asyncpg", "postgresql+psycopg"])
@pytest.mark.parametrize("what", ["transaction", "look"])
async def test_an_engine_that_looks_at_a_frozen_session_first_is_given_up(
    postgres_url: str,
    database: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    what: str,
) -> None:
    monkeypatch.setattr(sqlalchemy_transactions, "OPEN_SECONDS", 1.0)
    url = postgres_url.replace("postgresql", dialect, 1)
    engine = create_async_engine(url, pool_size=1, pool_pre_ping=True)
    transactions = transactions_of(db_engine=engine)
    async with asyncio.timeout(DEADLINE_SECONDS), freezing(database) as freeze:
        assert not await transactions.was_handled(QUEUE, "a")
        await freeze()
        with pytest.raises(DatabaseAwayError):
            if what == "look":
                await transactions.was_handled(QUEUE, "a")
            else:
                async with transactions.begin(QUEUE, "a", session=True):
                    pytest.fail("the listener must not run")
    await engine.dispose()


async def noted(database: asyncpg.Connection) -> list[tuple[str, str]]:
    rows = await database.fetch("SELECT queue, message_id FROM outbox_inbox ORDER BY message_id, queue")
    return [(row["queue"], row["message_id"]) for row in rows]


async def mails(database: asyncpg.Connection) -> list[str]:
    return [row["text"] for row in await database.fetch("SELECT text FROM mail ORDER BY text")]


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not await holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.01)


async def waiting_for_a_lock(database: asyncpg.Connection) -> bool:
    waiting: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return waiting > 0


async def test_the_note_commits_with_what_the_listener_writes_and_emits(
    door: Door, database: asyncpg.Connection
) -> None:
    async with door.begin("a") as entry:
        assert not entry.is_duplicate
        await execute(entry, "INSERT INTO mail VALUES ('hello')")
        emitted = await Emitter().emit(given(entry), "mail.sent", {"id": 1})
        assert (await noted(database), await mails(database)) == ([], [])
    assert await noted(database) == [(QUEUE, "a")]
    assert await mails(database) == ["hello"]
    assert await database.fetchval("SELECT message_id FROM outbox_table") == emitted


async def test_an_exception_undoes_the_note_and_what_the_listener_wrote_and_emitted(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(ListenerFailedError):
        async with door.begin("a") as entry:
            await execute(entry, "INSERT INTO mail VALUES ('hello')")
            await Emitter().emit(given(entry), "mail.sent", {"id": 1})
            raise ListenerFailedError
    assert (await noted(database), await mails(database)) == ([], [])
    assert await database.fetchval("SELECT count(*) FROM outbox_table") == 0
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def test_a_cancelled_listener_leaves_nothing_behind(door: Door, database: asyncpg.Connection) -> None:
    started = asyncio.Event()

    async def handle() -> None:
        async with door.begin("a") as entry:
            await execute(entry, "INSERT INTO mail VALUES ('hello')")
            started.set()
            await execute(entry, "SELECT pg_sleep(600)")

    handling = asyncio.create_task(handle())
    await started.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert (await noted(database), await mails(database)) == ([], [])
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def test_what_an_interrupted_listener_has_begun_cannot_commit(
    door: Door, database: asyncpg.Connection
) -> None:
    interrupted = asyncio.Event()

    async def go_on(entry: Entry) -> None:
        await interrupted.wait()
        await execute(entry, "INSERT INTO mail VALUES ('late')")
        if entry.session is not None:
            await entry.session.commit()

    with pytest.raises(HandlerTimeoutError):
        async with door.begin("a") as entry:
            begun = asyncio.create_task(go_on(entry))
            raise HandlerTimeoutError("the listener took too long")
    interrupted.set()
    with pytest.raises((asyncpg.InterfaceError, SQLAlchemyError)):
        await begun
    async with door.begin("a") as entry:
        assert not entry.is_duplicate
        await execute(entry, "INSERT INTO mail VALUES ('again')")
    assert (await noted(database), await mails(database)) == ([(QUEUE, "a")], ["again"])


async def test_a_message_that_was_handled_is_a_duplicate_in_its_queue_only(
    door: Door, database: asyncpg.Connection
) -> None:
    for queue in ("shop.mail", "shop.audit"):
        async with door.begin("a", queue) as entry:
            assert not entry.is_duplicate
    for _ in range(3):
        async with door.begin("a") as entry:
            assert entry.is_duplicate
            assert given(entry) is None
    assert await noted(database) == [("shop.audit", "a"), ("shop.mail", "a")]


async def is_duplicate(door: Door, message_id: str) -> bool:
    """What a second worker finds when it comes, as often as it takes."""
    while True:
        with contextlib.suppress(MessageBusyError):
            async with door.begin(message_id) as entry:
                return bool(entry.is_duplicate)


async def test_whoever_has_the_same_message_at_the_same_time_waits_and_sees_a_duplicate(
    door: Door, database: asyncpg.Connection
) -> None:
    async with door.begin("a"):
        waiting = asyncio.create_task(is_duplicate(door, "a"))
        await until("the second waits", lambda: waiting_for_a_lock(database))
    assert await waiting


async def test_whoever_waits_takes_over_when_the_first_fails(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(ListenerFailedError):
        async with door.begin("a"):
            waiting = asyncio.create_task(is_duplicate(door, "a"))
            await until("the second waits", lambda: waiting_for_a_lock(database))
            raise ListenerFailedError
    assert not await waiting
    assert await noted(database) == [(QUEUE, "a")]


async def test_whoever_waits_in_vain_is_told_why_and_keeps_no_connection(
    door: Door, database: asyncpg.Connection
) -> None:
    async with door.begin("a"):
        for _ in range(3):
            with pytest.raises(MessageBusyError, match=f"message a of queue {QUEUE} is being handled"):
                async with door.begin("a"):
                    pytest.fail("the first has neither committed nor rolled back")
        # Of two connections the first has one.
        async with door.begin("b") as entry:
            assert not entry.is_duplicate

    async def nobody_waits() -> bool:
        return not await waiting_for_a_lock(database)

    await until("the server waits for nobody", nobody_waits)
    assert await is_duplicate(door, "a")


@pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
async def test_the_server_ends_the_transaction_of_who_does_nothing_in_it(
    request: pytest.FixtureRequest,
    postgres_url: str,
    database: asyncpg.Connection,
    pooled: bool,
    session: bool,
) -> None:
    url = request.getfixturevalue("pooler").url if pooled else postgres_url
    transactions = transactions_of(db_engine_url=url, longest_seconds=0.1)
    others = Door(transactions_of(db_engine_url=postgres_url), session)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await transactions.open()
        with pytest.raises(DatabaseAwayError):
            async with transactions.begin(QUEUE, "a", session=session):
                # As a process that is frozen: it has not heard of it yet.
                assert not await is_duplicate(others, "a")
    assert await noted(database) == [(QUEUE, "a")]
    await transactions.aclose()
    await others.transactions.aclose()


@pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
async def test_the_limit_of_a_transaction_reaches_no_other_client_of_a_pooler(
    database: asyncpg.Connection, pooler: PgBouncer, session: bool
) -> None:
    transactions = transactions_of(db_engine_url=pooler.url, longest_seconds=300)
    await transactions.open()
    shown = "SELECT pg_backend_pid() || ' ' || current_setting('idle_in_transaction_session_timeout')"
    async with transactions.begin(QUEUE, "a", session=session) as entry:
        await execute(entry, f"INSERT INTO mail {shown}")
    (ours,) = await mails(database)
    other = await asyncpg.connect(pooler.url, statement_cache_size=0)
    async with other.transaction():
        theirs = await other.fetchval(shown)
    # It is the same session, which the pooler gives to whoever comes next.
    assert (ours, theirs) == (f"{ours.split()[0]} 5min", f"{ours.split()[0]} 0")
    await other.close()
    await transactions.aclose()


@pytest.mark.parametrize("session", [False, True])
async def test_a_frozen_pooler_is_given_up(
    pooler: PgBouncer, database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, session: bool
) -> None:
    for module in (asyncpg_transactions, sqlalchemy_transactions):
        monkeypatch.setattr(module, "OPEN_SECONDS", 1.0)
        monkeypatch.setattr(module, "END_SECONDS", 1.0)
    transactions = transactions_of(db_engine_url=pooler.url, longest_seconds=300)
    await transactions.open()
    async with transactions.begin(QUEUE, "a", session=session):
        pass
    async with asyncio.timeout(DEADLINE_SECONDS):
        with pooler.frozen(), pytest.raises(DatabaseAwayError):
            async with transactions.begin(QUEUE, "b", session=session):
                pytest.fail("the listener must not run")
        async with transactions.begin(QUEUE, "b", session=session):
            pass
    assert await noted(database) == [(QUEUE, "a"), (QUEUE, "b")]
    await transactions.aclose()


async def test_a_limit_in_the_url_goes_before_ours(postgres_url: str) -> None:
    url = f"{postgres_url}?idle_in_transaction_session_timeout=54321"
    transactions = transactions_of(db_engine_url=url, longest_seconds=1)
    await transactions.create()
    async with transactions.begin(QUEUE, "a") as entry:
        setting = await entry.connection.fetchval("SHOW idle_in_transaction_session_timeout")
    assert setting == "54321ms"
    await transactions.aclose()


async def terminate_others(database: asyncpg.Connection) -> None:
    """End the sessions of the doors, and wait until the server has."""

    async def are_gone() -> bool:
        others: int = await database.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return others == 0

    await until("the other sessions are gone", are_gone)


async def test_a_connection_lost_while_the_listener_runs_is_no_fault_of_the_listener(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(DatabaseAwayError) as caught:
        async with door.begin("a") as entry:
            await terminate_others(database)
            await execute(entry, "INSERT INTO mail VALUES ('hello')")
    assert caught.value.has_run
    assert (await noted(database), await mails(database)) == ([], [])
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def test_an_error_that_a_listener_makes_of_a_lost_connection_is_none_of_its_own(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(DatabaseAwayError, match="Postgres .*: .+"):
        async with door.begin("a") as entry:
            await terminate_others(database)
            try:
                await execute(entry, "INSERT INTO mail VALUES ('hello')")
            except Exception as error:
                raise ListenerFailedError from error


async def test_a_network_error_of_the_listener_is_its_own(door: Door, database: asyncpg.Connection) -> None:
    with pytest.raises(ConnectionRefusedError):
        async with door.begin("a"):
            raise ConnectionRefusedError("the mail server is away")
    assert await noted(database) == []


async def test_a_connection_lost_before_commit_means_away_and_the_next_try_works(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(DatabaseAwayError) as caught:
        async with door.begin("a"):
            await terminate_others(database)
    assert caught.value.has_run
    assert await noted(database) == []
    async with door.begin("a") as entry:
        assert not entry.is_duplicate
    assert await noted(database) == [(QUEUE, "a")]


@contextlib.asynccontextmanager
async def mute_after_commit(url: str) -> AsyncIterator[str]:
    """The database behind a network that fails once: between the first COMMIT and its answer."""
    parts = urlsplit(url)
    has_failed = False
    links: set[asyncio.Task[None]] = set()

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(parts.hostname, parts.port)
        is_mute = False

        async def there() -> None:
            nonlocal has_failed, is_mute
            while data := await reader.read(1 << 16):
                is_mute = b"COMMIT" in data.replace(b"READ COMMITTED", b"") and not has_failed
                has_failed |= is_mute
                server_writer.write(data)

        async def back() -> None:
            while (data := await server_reader.read(1 << 16)) and not is_mute:
                writer.write(data)

        ways = [asyncio.create_task(there()), asyncio.create_task(back())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            server_writer.close()
            writer.close()

    def linked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links.add(asyncio.create_task(link(reader, writer)))

    server = await asyncio.start_server(linked, "127.0.0.1", 0)
    address = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield urlunsplit(parts._replace(netloc=address))
    finally:
        server.close()
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)


@pytest.mark.parametrize("session", [False, True])
async def test_where_the_answer_to_commit_is_lost_the_next_try_tells_what_became_of_it(
    database: asyncpg.Connection, postgres_url: str, session: bool
) -> None:
    async with mute_after_commit(postgres_url) as url, asyncio.timeout(DEADLINE_SECONDS):
        transactions = transactions_of(db_engine_url=url)
        with pytest.raises(DatabaseAwayError) as caught:
            async with transactions.begin(QUEUE, "a", session=session) as entry:
                await execute(entry, "INSERT INTO mail VALUES ('hello')")
        assert caught.value.has_run
        async with transactions.begin(QUEUE, "a", session=session) as entry:
            assert entry.is_duplicate
        await transactions.aclose()
    assert await mails(database) == ["hello"]


async def test_a_transaction_costs_two_round_trips_beside_what_the_listener_does(
    database: asyncpg.Connection, postgres_url: str
) -> None:
    async with counted(postgres_url) as trips:
        transactions = transactions_of(db_engine_url=trips.url)
        await transactions.open()
        before = trips.count
        for number in range(10):
            async with transactions.begin(QUEUE, str(number)):
                pass
        after = trips.count
        await transactions.aclose()
    assert after - before == 20


async def test_connections_that_were_lost_while_idle_are_replaced(
    door: Door, database: asyncpg.Connection
) -> None:
    async with door.begin("a"):
        pass
    await terminate_others(database)
    try:
        async with door.begin("b"):
            pass
    except DatabaseAwayError:  # it found out; a pool then throws away all of its connections
        async with door.begin("b"):
            pass
    assert await noted(database) == [(QUEUE, "a"), (QUEUE, "b")]


@pytest.mark.parametrize("use", ["begin", "note", "purge"])
async def test_a_session_on_a_server_that_became_read_only_is_replaced(door: Door, use: str) -> None:
    async def used() -> None:
        match use:
            case "begin":
                async with door.begin("b"):
                    pass
            case "note":
                await door.transactions.note_handled(QUEUE, "b")
            case _:
                await door.transactions.purge(0, 10)

    async with door.begin("a") as entry:
        # What a demoted primary does to the sessions that are open.
        await execute(entry, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    # The sessions of a URL have connections of their own.
    with contextlib.suppress(DatabaseAwayError):
        await used()
    await used()


async def test_a_listener_that_swallows_a_failed_statement_does_not_pass_for_done(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(TransactionAbortedError, match="savepoint"):
        async with door.begin("a") as entry:
            await execute(entry, "INSERT INTO mail VALUES ('hello')")
            with pytest.raises(Exception, match="no_such_table"):
                await execute(entry, "SELECT FROM no_such_table")
    assert (await noted(database), await mails(database)) == ([], [])
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def end_transaction(entry: Entry, statements: str) -> None:
    """End the transaction as a listener might: by SQL, or by the methods of a session."""
    for statement in statements.split("; "):
        if entry.connection is None and statement in ("COMMIT", "ROLLBACK"):
            await getattr(entry.session, statement.lower())()
        elif entry.connection is None and statement == "BEGIN":
            pass  # a session begins by itself
        else:
            await execute(entry, statement)


ANOTHER = "; BEGIN; SAVEPOINT outbox_note"
"""Another transaction that resembles one of the worker's."""


@pytest.mark.parametrize(
    "statements",
    [
        "COMMIT",
        "COMMIT AND CHAIN",
        f"COMMIT{ANOTHER}",
        "ROLLBACK",
        "ROLLBACK AND CHAIN",
        f"ROLLBACK{ANOTHER}",
    ],
)
async def test_a_listener_that_ends_its_transaction_and_returns_fails(
    door: Door, database: asyncpg.Connection, statements: str
) -> None:
    with pytest.raises(TransactionEndedError, match="leave (COMMIT|commit) and"):
        async with door.begin("a") as entry:
            await end_transaction(entry, statements)
            if statements.endswith(("CHAIN", ANOTHER)):
                await execute(entry, "INSERT INTO mail VALUES ('without its note')")
    assert await mails(database) == []


@pytest.mark.parametrize(
    "statements",
    ["COMMIT", "COMMIT AND CHAIN", f"COMMIT{ANOTHER}", "COMMIT; BEGIN; SELECT FROM no_such_table"],
)
async def test_a_listener_that_commits_and_then_raises_has_ended_its_transaction(
    door: Door, database: asyncpg.Connection, statements: str
) -> None:
    with pytest.raises(TransactionEndedError, match="leave (COMMIT|commit) and") as caught:
        async with door.begin("a") as entry:
            with contextlib.suppress(asyncpg.UndefinedTableError, ProgrammingError):
                await end_transaction(entry, statements)
            raise ListenerFailedError
    assert isinstance(caught.value.__cause__, ListenerFailedError)
    await door.transactions.forget(QUEUE, "a")
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "unnoticed"])
async def test_a_listener_that_commits_and_loses_its_connection_has_ended_its_transaction(
    door: Door, database: asyncpg.Connection, is_noticed: bool
) -> None:
    with pytest.raises(TransactionEndedError):
        async with door.begin("a") as entry:
            await end_transaction(entry, "COMMIT")
            await terminate_others(database)
            if is_noticed:
                await execute(entry, "INSERT INTO mail VALUES ('hello')")
            raise ListenerFailedError
    await door.transactions.forget(QUEUE, "a")
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def test_what_another_worker_commits_after_a_loss_is_not_taken_for_the_listeners_commit(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(DatabaseAwayError):
        async with door.begin("a") as entry:
            await terminate_others(database)
            await database.execute("INSERT INTO outbox_inbox VALUES ($1, 'a')", QUEUE)
            await execute(entry, "INSERT INTO mail VALUES ('hello')")
    assert await noted(database) == [(QUEUE, "a")]


async def test_a_listener_that_fails_and_loses_its_connection_fails_with_its_own_error(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises(ListenerFailedError):
        async with door.begin("a"):
            await terminate_others(database)
            raise ListenerFailedError
    assert await noted(database) == []


@pytest.mark.parametrize(
    "statements",
    ["ROLLBACK", "ROLLBACK AND CHAIN", f"ROLLBACK{ANOTHER}", "SELECT FROM no_such_table"],
)
async def test_a_listener_that_rolls_back_and_raises_fails_with_its_own_error(
    door: Door, database: asyncpg.Connection, statements: str
) -> None:
    with pytest.raises(ListenerFailedError):
        async with door.begin("a") as entry:
            await execute(entry, "INSERT INTO mail VALUES ('undone')")
            with contextlib.suppress(asyncpg.UndefinedTableError, ProgrammingError):
                await end_transaction(entry, statements)
            raise ListenerFailedError
    assert (await noted(database), await mails(database)) == ([], [])
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def test_an_error_that_only_the_commit_finds_is_the_listeners(
    door: Door, database: asyncpg.Connection
) -> None:
    with pytest.raises((asyncpg.UniqueViolationError, IntegrityError)):
        async with door.begin("a") as entry:
            await execute(entry, "INSERT INTO mail VALUES ('hello'), ('hello')")
    assert await noted(database) == []
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def make_serializable(database: asyncpg.Connection) -> None:
    name = await database.fetchval("SELECT current_database()")
    await database.execute(f"ALTER DATABASE {name} SET default_transaction_isolation TO serializable")


async def test_a_serialization_failure_at_commit_is_transient(
    door: Door, database: asyncpg.Connection
) -> None:
    await make_serializable(database)
    with pytest.raises(DatabaseAwayError, match="could not serialize") as caught:
        async with door.begin("a") as last:
            await execute(last, "SELECT count(*) FROM mail")
            async with door.begin("b") as first:
                await execute(first, "SELECT count(*) FROM mail")
                await execute(last, "INSERT INTO mail VALUES ('last')")
                await execute(first, "INSERT INTO mail VALUES ('first')")
    assert caught.value.has_run
    assert (await noted(database), await mails(database)) == ([(QUEUE, "b")], ["first"])
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


async def test_only_the_transaction_of_a_listener_has_the_isolation_level_of_the_database(
    door: Door, database: asyncpg.Connection
) -> None:
    await make_serializable(database)
    await database.execute(
        "CREATE TABLE seen (level text); CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO seen VALUES (current_setting('transaction_isolation')); RETURN NULL; END $$; "
        "CREATE TRIGGER see AFTER INSERT OR DELETE ON outbox_inbox EXECUTE FUNCTION see()"
    )
    await door.transactions.note_handled(QUEUE, "a")
    await door.transactions.forget(QUEUE, "a")
    await door.transactions.purge(0, 1)
    async with door.begin("b"):
        pass
    assert await door.transactions.check() == []
    levels = [row["level"] for row in await database.fetch("SELECT level FROM seen")]
    assert levels == ["read committed", "read committed", "read committed", "serializable"]


async def test_a_listener_may_open_savepoints(door: Door, database: asyncpg.Connection) -> None:
    async def fail(entry: Entry) -> None:
        savepoint = entry.session.begin_nested() if entry.connection is None else given(entry).transaction()
        async with savepoint:
            await execute(entry, "INSERT INTO mail VALUES ('undone')")
            raise ListenerFailedError

    for message_id in ("a", "b"):
        async with door.begin(message_id) as entry:
            await execute(entry, f"INSERT INTO mail VALUES ('{message_id}')")
            with pytest.raises(ListenerFailedError):
                await fail(entry)
    assert await mails(database) == ["a", "b"]
    assert await noted(database) == [(QUEUE, "a"), (QUEUE, "b")]


async def test_the_filter_alone_tells_what_was_handled(door: Door, database: asyncpg.Connection) -> None:
    transactions = door.transactions
    assert not await transactions.was_handled(QUEUE, "a")
    await transactions.note_handled(QUEUE, "a")
    await transactions.note_handled(QUEUE, "a")
    assert await transactions.was_handled(QUEUE, "a")
    assert not await transactions.was_handled("shop.audit", "a")
    assert await noted(database) == [(QUEUE, "a")]
    async with door.begin("a") as entry:
        assert entry.is_duplicate


@pytest.mark.parametrize(
    "message_id", ["it's", 'a"b', r"back\slash", "$1 %s :x {table}", "größe", "", "x" * 255]
)
async def test_whatever_an_id_contains_it_is_only_an_id(
    door: Door, database: asyncpg.Connection, message_id: str
) -> None:
    async with door.begin(message_id) as entry:
        assert not entry.is_duplicate
    assert await door.transactions.was_handled(QUEUE, message_id)
    assert await noted(database) == [(QUEUE, message_id)]


@pytest.mark.parametrize("message_id", ["a\0b", "\ud800"])
async def test_an_id_that_postgres_cannot_store_is_no_fault_of_the_database(
    door: Door, database: asyncpg.Connection, message_id: str
) -> None:
    with pytest.raises(ValueError, match="message_id"):
        async with door.begin(message_id):
            pytest.fail("the listener must not run")
    for use in (door.transactions.was_handled, door.transactions.note_handled):
        with pytest.raises(ValueError, match="message_id"):
            await use(QUEUE, message_id)


async def test_old_notes_are_forgotten_in_batches_beside_others(
    door: Door, database: asyncpg.Connection, postgres_url: str
) -> None:
    await database.execute(
        "INSERT INTO outbox_inbox "
        "SELECT 'q', n::text, now() - n * interval '1 day' FROM generate_series(1, 9) n"
    )
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.execute("SELECT FROM outbox_inbox WHERE message_id = '9' FOR UPDATE")
        counts = [await door.transactions.purge(5 * 86400, 2) for _ in range(3)]
    await other.close()
    # 5 to 9 are old, and 9 is somebody else's for now.
    assert counts == [2, 2, 0]
    assert [message_id for _, message_id in await noted(database)] == ["1", "2", "3", "4", "9"]
    assert await door.transactions.purge(5 * 86400, 2) == 1


async def test_an_inbox_that_is_missing_is_said_and_created_once(
    door: Door, database: asyncpg.Connection
) -> None:
    await database.execute("DROP TABLE outbox_inbox")
    (problem,) = await door.transactions.check()
    assert problem == 'table "outbox_inbox": it does not exist; run outbox_worker.inbox.create_sql()'
    with pytest.raises(DatabaseAwayError, match='"outbox_inbox" does not exist'):
        async with door.begin("a"):
            pytest.fail("the listener must not run")
    with pytest.raises(DatabaseAwayError, match='"outbox_inbox" does not exist'):
        await door.transactions.was_handled(QUEUE, "a")
    await asyncio.gather(*(door.transactions.create() for _ in range(3)))
    assert await door.transactions.check() == []
    async with door.begin("a") as entry:
        assert not entry.is_duplicate


@pytest.mark.parametrize(
    ("ddl", "named"),
    [
        ("ALTER TABLE outbox_inbox DROP COLUMN handled_at", ["column handled_at is missing", "ADD COLUMN"]),
        ("ALTER TABLE outbox_inbox DROP CONSTRAINT outbox_inbox_pkey", ["noted twice", "ADD PRIMARY KEY"]),
        (
            "ALTER TABLE outbox_inbox ALTER handled_at DROP DEFAULT",
            ["lacks its default", "SET DEFAULT now()"],
        ),
        (
            "ALTER TABLE outbox_inbox ALTER message_id TYPE uuid USING message_id::uuid",
            ["column message_id is uuid and must be text", "ALTER COLUMN message_id TYPE text"],
        ),
    ],
)
async def test_a_table_that_will_not_do_is_said_with_the_cure(
    database: asyncpg.Connection, ddl: str, named: list[str]
) -> None:
    await database.execute(ddl)
    (problem,) = await Inbox().check(database)
    assert [part for part in ('table "outbox_inbox": ', *named) if part not in problem] == []


async def test_an_inbox_whose_notes_are_hidden_is_said_with_the_cure(database: asyncpg.Connection) -> None:
    role = f'"{await database.fetchval("SELECT current_database()")}_worker"'
    await database.execute(
        f"""
        CREATE ROLE {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_inbox TO {role};
        ALTER TABLE outbox_inbox ENABLE ROW LEVEL SECURITY;
        CREATE POLICY noting ON outbox_inbox FOR INSERT WITH CHECK (true);
        SET ROLE {role}
        """
    )
    (problem,) = await Inbox().check(database)
    await database.execute("RESET ROLE")
    told, _, cure = problem.partition("; run ")
    assert told == (
        'table "outbox_inbox": row-level security hides every row from SELECT, UPDATE, DELETE of role '
        f"{role}, so that what was handled is not recognised"
    )
    await database.execute(f"{cure}; SET ROLE {role}")
    assert await Inbox().check(database) == []
    await database.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


async def test_creating_the_inbox_again_waits_for_nobody(
    database: asyncpg.Connection, postgres_url: str
) -> None:
    other = await asyncpg.connect(postgres_url, server_settings={"lock_timeout": "1s"})
    async with database.transaction():
        await database.execute("INSERT INTO outbox_inbox VALUES ('q', 'a')")
        await other.execute(inbox.create_sql())
    await other.close()


async def test_an_inbox_may_have_any_name(database: asyncpg.Connection, postgres_url: str) -> None:
    await database.execute('CREATE SCHEMA "my.shop"')
    transactions = transactions_of(db_engine_url=postgres_url, table='"my.shop"."in $1 %s"')
    await transactions.create()
    assert await transactions.check() == []
    async with transactions.begin(QUEUE, "a") as entry:
        assert not entry.is_duplicate
    async with transactions.begin(QUEUE, "a", session=True) as entry:
        assert entry.is_duplicate
    assert await database.fetchval('SELECT count(*) FROM "my.shop"."in $1 %s"') == 1
    await transactions.aclose()


async def test_the_plan_of_retention_reads_its_index(database: asyncpg.Connection) -> None:
    await database.execute(
        "INSERT INTO outbox_inbox SELECT 'q', n::text, now() - n * interval '1 second' "
        "FROM generate_series(1, 20000) n; ANALYZE outbox_inbox"
    )
    query = Inbox()._purge.dollar.replace("$1", "19000").replace("$2", "100")
    plan = "\n".join(row[0] for row in await database.fetch(f"EXPLAIN {query}"))
    assert "outbox_inbox_handled_idx" in plan
    assert "Seq Scan" not in plan


async def backends(database: asyncpg.Connection) -> int:
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'outbox-worker'"
    )
    return count


@pytest.mark.parametrize("session", [False, True])
async def test_no_more_connections_than_asked_for(
    database: asyncpg.Connection, postgres_url: str, session: bool
) -> None:
    transactions = transactions_of(db_engine_url=postgres_url, size=3)
    looking = asyncio.Lock()
    running: set[int] = set()
    most = seen = 0

    async def handle(number: int) -> None:
        nonlocal most, seen
        async with transactions.begin(QUEUE, str(number), session=session):
            running.add(number)
            most = max(most, len(running))
            # Everybody who is let in stays while the others look.
            async with looking:
                seen = max(seen, await backends(database))
            running.remove(number)

    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(handle(number) for number in range(20)))
    assert seen == 3
    assert most <= 3
    await transactions.aclose()

    async def are_closed() -> bool:
        return await backends(database) == 0

    await until("the connections are closed", are_closed)


async def test_a_connection_lent_at_the_end_is_closed_when_it_comes_back(
    database: asyncpg.Connection, postgres_url: str
) -> None:
    connections = Connections(Database(postgres_url), 2, "outbox-worker", None)
    kept, lent = await connections.take(), await connections.take()
    connections.give_back(kept)
    await connections.aclose()
    assert (kept.is_closed(), lent.is_closed()) == (True, False)
    connections.give_back(lent)
    assert lent.is_closed()


async def test_a_connection_that_cannot_be_had_leaves_its_place_free() -> None:
    connections = Connections(Database("postgresql://127.0.0.1:1/shop"), 1, "outbox-worker", None)
    async with asyncio.timeout(DEADLINE_SECONDS):
        for _ in range(3):
            with pytest.raises(UnreachableError):
                await connections.take()


async def test_a_database_that_does_not_answer_is_away_and_a_wrong_password_is_said_at_start(
    postgres_url: str,
) -> None:
    nobody = transactions_of(db_engine_url="postgresql://app:s3cret@127.0.0.1:1/shop")
    for use in (nobody.open, nobody.create, nobody.check, lambda: nobody.was_handled(QUEUE, "a")):
        with pytest.raises(
            DatabaseAwayError, match=r"^Postgres 127\.0\.0\.1:1/shop \(user app\): "
        ) as caught:
            await use()
        assert "s3cret" not in str(caught.value)
    with pytest.raises(DatabaseAwayError):
        async with nobody.begin(QUEUE, "a"):
            pytest.fail("the listener must not run")
    wrong = transactions_of(db_engine_url=postgres_url.replace("@", "s3cret@", 1))
    with pytest.raises(AuthenticationError):
        await wrong.open()


def on_user(user: object) -> None: ...
async def with_connection(user: object, connection: object) -> None: ...
async def with_session(user: object, session: object) -> None: ...


async def test_what_an_engine_cannot_give_is_said_at_start(postgres_url: str) -> None:
    listeners: list[Listener[..., object]] = [
        listen("k")(on_user),
        listen("k", queue="one", exactly_once=True)(with_connection),
        listen("k", queue="two", exactly_once=True)(with_session),
    ]
    psycopg = create_async_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1))
    (problem,) = transactions_of(db_engine=psycopg).problems(listeners)
    assert problem.startswith(
        "one: it asks for a connection, which is asyncpg's, and db_engine is on psycopg"
    )
    fitting = create_async_engine(postgres_url.replace("postgresql", "postgresql+asyncpg", 1))
    assert transactions_of(db_engine=fitting).problems(listeners) == []
    assert transactions_of(db_engine_url=postgres_url).problems(listeners) == []


async def test_an_engine_that_commits_by_itself_is_said_at_start(
    database: asyncpg.Connection, postgres_url: str
) -> None:
    url = postgres_url.replace("postgresql", "postgresql+asyncpg", 1)
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    (problem,) = await transactions_of(db_engine=engine).check()
    assert "AUTOCOMMIT" in problem
    await engine.dispose()


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction")
        yield pooler


@pytest.mark.parametrize("session", [False, True])
async def test_behind_pgbouncer_in_transaction_mode_it_works(
    pooler: PgBouncer, database: asyncpg.Connection, session: bool
) -> None:
    workers = [transactions_of(db_engine_url=pooler.url, size=3) for _ in range(2)]
    runs: list[int] = []

    async def handle(transactions: Transactions, number: int) -> None:
        async with transactions.begin(QUEUE, str(number), session=session) as entry:
            if entry.is_duplicate:
                return
            runs.append(number)
            await Emitter().emit(given(entry), "mail.sent", {"id": number})

    async with asyncio.timeout(DEADLINE_SECONDS):
        for transactions in workers:
            await transactions.open()
            assert await transactions.check() == []
        await asyncio.gather(*(handle(worker, number) for number in range(50) for worker in workers))
    assert sorted(runs) == list(range(50))
    assert len(await noted(database)) == 50
    assert await database.fetchval("SELECT count(*) FROM outbox_table") == 50
    for transactions in workers:
        await transactions.aclose()
