"""`outbox messages` on a real table."""

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from outbox import schema
from tests.integration.commanding import Told, asked, outbox_beside, started
from tests.integration.pgbouncer import PgBouncer
from tests.integration.relaying import until
from tests.integration.sleeping import asleep

ROWS = """
INSERT INTO outbox_table
    (message_id, routing_key, body, headers, created_at, send_after, sent_at, parked_at, attempts, last_error)
VALUES
    ('00000000-0000-0000-0000-000000000001', 'user.created', '{"id": 1}', NULL,
     now() - interval '5 minutes', now() - interval '5 minutes', NULL, NULL, 0, NULL),
    ('00000000-0000-0000-0000-000000000002', 'user.remind', '{"id": 2}', NULL,
     now() - interval '2 hours', now() + interval '2 days 1 minute', NULL, NULL, 0, NULL),
    ('00000000-0000-0000-0000-000000000003', 'order.placed', '{"id": 3}', '{"colour": "red"}',
     '2026-01-02 03:04:05Z', '2026-01-02 03:04:05Z', NULL, '2026-01-02 03:05:05Z', 7,
     'no queue is bound for "order.placed" on exchange "outbox"'),
    ('00000000-0000-0000-0000-000000000004', 'order.placed.late', '\\x00ff', NULL,
     now() - interval '3 days', now() - interval '3 days', NULL, now(), 100, 'refused'),
    ('00000000-0000-0000-0000-000000000005', 'user.created', '{"id": 5}', NULL,
     now() - interval '90 seconds', now() - interval '90 seconds', now(), NULL, 0, NULL)
"""


@pytest.fixture
async def table(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    await connection.execute(ROWS)
    yield connection
    await connection.close()


@pytest.fixture
def url(postgres_url: str, table: asyncpg.Connection) -> str:
    return postgres_url


async def messages(url: str, *arguments: str, answer: str | None = None) -> Told:
    return await outbox_beside("messages", *arguments, answer=answer, OUTBOX_DATABASE_URL=url)


async def ids(table: asyncpg.Connection, where: str = "true") -> list[int]:
    return [row["id"] for row in await table.fetch(f"SELECT id FROM outbox_table WHERE {where} ORDER BY id")]


async def test_a_list_reads_well_and_cuts_nothing_off(table: asyncpg.Connection, url: str) -> None:
    await table.execute("UPDATE outbox_table SET created_at = now() - interval '9 days' WHERE id = 3")
    told = await messages(url, "list")
    assert told.output == (
        "ID   STATE     ROUTING KEY         AGE   ATTEMPTS   DETAIL\n"
        "1    pending   user.created        5m    0\n"
        "2    delayed   user.remind         2h    0          due in 2d\n"
        '3    parked    order.placed        9d    7          no queue is bound for "order.placed" on exchange'
        ' "outbox"\n'
        "4    parked    order.placed.late   3d    100        refused\n"
    )


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--state", "sent"), [5]),
        (("-s", "parked", "-s", "sent"), [3, 4, 5]),
        (("--routing-key", "user.*"), [1, 2]),
        (("--routing-key", "order.*"), [3]),
        (("--routing-key", "order.#"), [3, 4]),
        (("--routing-key", "user.cr*"), [1]),
        (("--older-than", "1h"), [2, 3, 4]),
        (("--newer-than", "1h"), [1]),
        (("--limit", "2"), [1, 2]),
        (("--state", "parked", "--routing-key", "nobody"), []),
    ],
)
async def test_messages_are_found_by(url: str, arguments: tuple[str, ...], found: list[int]) -> None:
    told = await messages(url, "list", *arguments, "-o", "json")
    assert [line["id"] for line in json.loads(told.output)] == found


async def test_a_list_that_was_cut_says_so(url: str) -> None:
    told = await messages(url, "list", "--limit", "1")
    assert told.output.splitlines()[-1] == "… and more: --limit 10, or narrow it down"


async def test_one_message_is_shown_whole(url: str) -> None:
    told = await messages(url, "show", "3")
    assert told.output == (
        "id:            3\n"
        "state:         parked\n"
        "routing key:   order.placed\n"
        "message id:    00000000-0000-0000-0000-000000000003\n"
        "emitted:       2026-01-02T03:04:05.000Z\n"
        "due:           2026-01-02T03:04:05.000Z\n"
        "parked:        2026-01-02T03:05:05.000Z\n"
        "attempts:      7\n"
        'last error:    no queue is bound for "order.placed" on exchange "outbox"\n'
        "content type:  application/json\n"
        "header colour: red\n"
        "body:\n"
        "  {\n"
        '    "id": 3\n'
        "  }\n"
    )


@pytest.mark.parametrize(
    ("moment", "shown", "detail"),
    [
        ("9999-12-31 23:59:59.999999+00", "9999-12-31T23:59:59.999Z", "due in"),
        ("9999-12-31 23:59:59-12", "10000-01-01T11:59:59.000Z", "due in"),
        ("infinity", "infinity", "due never"),
        ("-infinity", "-infinity", ""),
        ("0044-03-15 12:00+00 BC", "0044-03-15T12:00:00.000Z BC", ""),
    ],
)
async def test_a_moment_beyond_pythons_is_shown(
    table: asyncpg.Connection, url: str, moment: str, shown: str, detail: str
) -> None:
    await table.execute(
        f"UPDATE outbox_table SET send_after = '{moment}', expiration = interval '100000000 years' "
        "WHERE id = 1"
    )
    one = await messages(url, "show", "1")
    assert (one.status, f"due:          {shown}\n" in one.output) == (0, True), one.output
    listed = await messages(url, "list")
    assert detail in listed.output.splitlines()[1]
    for arguments in (("show", "1"), ("list",)):
        text = (await messages(url, *arguments, "-o", "json")).output
        json.loads(text, parse_constant=pytest.fail)
    told = await outbox_beside("status", OUTBOX_DATABASE_URL=url)
    assert '"outbox_table"' in told.output


async def test_a_long_list_is_printed_page_by_page(table: asyncpg.Connection, url: str) -> None:
    await table.execute(
        "INSERT INTO outbox_table (routing_key, body) SELECT 'bulk', '1' FROM generate_series(1, 2500)"
    )
    lines = (await messages(url, "list", "--limit", "2200")).output.splitlines()
    assert [int(line.split()[0]) for line in lines[1:-1]] == (await ids(table, "sent_at IS NULL"))[:2200]
    assert lines[-1] == "… and more: --limit 22000, or narrow it down"
    everything = json.loads((await messages(url, "list", "--limit", "100000", "-o", "json")).output)
    assert len(everything) == 2504
    assert (await messages(url, "list", "-k", "nobody", "-o", "json")).output == "[]\n"


async def test_a_long_list_reads_the_table_a_fixed_number_of_times(
    table: asyncpg.Connection, url: str
) -> None:
    rows = 40_000
    await table.execute(
        "INSERT INTO outbox_table (routing_key, body, parked_at) "
        f"SELECT 'bulk', '1', now() FROM generate_series(1, {rows})"
    )
    read = (
        "SELECT pg_stat_get_tuples_returned('outbox_table'::regclass) "
        "+ pg_stat_get_tuples_fetched('outbox_table'::regclass)"
    )
    before: int = await table.fetchval(read)
    await messages(url, "list", "-k", "bulk", "--limit", str(rows))

    async def is_counted() -> bool:
        return bool(await table.fetchval(read) >= before + rows)

    await until(is_counted, "the statistics of the command's session")
    # A page by its ids may be planned as a scan of the table, until Postgres has seen a few of them.
    assert await table.fetchval(read) <= before + 10 * rows


async def test_an_output_without_unicode_is_written_with_its_own_characters(
    table: asyncpg.Connection, url: str
) -> None:
    await table.execute("UPDATE outbox_table SET last_error = 'gr\u00fcn', routing_key = 'gr\u00fcn'")
    ascii_only = {"OUTBOX_DATABASE_URL": url, "PYTHONIOENCODING": "ascii"}
    for arguments in (("list", "--limit", "1"), ("show", "3"), ("show", "3", "-o", "json")):
        async with started("messages", *arguments, stdin=PIPE, stderr=PIPE, **ascii_only) as process:
            output, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
        assert b"gr" in output
        if "json" in arguments:
            assert json.loads(output)["last_error"] == "gr\u00fcn"
        elif "list" in arguments:
            assert output.splitlines()[-1] == b"... and more: --limit 10, or narrow it down"


async def test_a_body_of_bytes_is_shown(url: str) -> None:
    assert (await messages(url, "show", "4")).output.splitlines()[-1] == "body:         00 ff"
    shown = json.loads((await messages(url, "show", "4", "-o", "json")).output)
    assert shown["body"] == {"base64": "AP8="}


async def test_a_message_that_is_not_there_is_one_line(url: str) -> None:
    told = await messages(url, "show", "77")
    assert told.status == 1
    assert told.errors == (
        'outbox: table "outbox_table" has no message 77; it may have been sent and deleted since: '
        "see `outbox messages list`\n"
    )


async def test_a_retry_makes_parked_messages_due_and_wakes_the_relay(
    table: asyncpg.Connection, url: str
) -> None:
    woken = asyncio.Event()
    await table.add_listener("outbox_channel", lambda *_: woken.set())
    async with asleep(url):
        told = await messages(url, "retry", "--routing-key", "order.placed")
    assert (told.status, told.output) == (0, "1 message will be sent again\n")
    row = await table.fetchrow(
        "SELECT parked_at, attempts, send_after > now() - interval '1 minute' AS is_new "
        "FROM outbox_table WHERE id = 3"
    )
    assert row is not None
    assert tuple(row) == (None, 0, True)
    await until(woken.is_set, "the notification")
    assert await ids(table, "parked_at IS NOT NULL") == [4]


async def test_a_dry_run_of_a_retry_changes_nothing(table: asyncpg.Connection, url: str) -> None:
    told = await messages(url, "retry", "--dry-run")
    assert told.output == "2 parked messages would be sent again\n"
    assert await ids(table, "parked_at IS NOT NULL") == [3, 4]


async def test_an_expiration_that_has_ended_does_not_have_the_retry_dropped(
    table: asyncpg.Connection, url: str
) -> None:
    await table.execute("UPDATE outbox_table SET expiration = interval '-1 hour' WHERE id = 3")
    await table.execute("UPDATE outbox_table SET expiration = interval '1 minute' WHERE id = 4")
    assert (await messages(url, "retry", "3", "4")).status == 0
    rows = await table.fetch(
        "SELECT expiration IS NULL OR send_after + expiration > now() FROM outbox_table WHERE id IN (3, 4)"
    )
    assert [row[0] for row in rows] == [True, True]


async def test_a_retry_of_a_message_that_is_not_parked_says_so(table: asyncpg.Connection, url: str) -> None:
    told = await messages(url, "retry", "1", "3")
    assert told.status == 1
    assert told.output == "1 message will be sent again\n"
    assert told.errors == (
        "outbox: only 1 of the 2 rows that were named is parked; see `outbox messages show`\n"
    )


async def test_a_timer_that_was_set_anew_is_not_sent_twice(table: asyncpg.Connection, url: str) -> None:
    await table.execute("UPDATE outbox_table SET timer_id = 't', routing_key = 'x' WHERE id IN (3, 4)")
    told = await messages(url, "retry")
    assert told.status == 1
    assert told.output == "1 message will be sent again\n"
    assert told.errors == (
        "outbox: left as they are, since their timers have been set anew and are pending: 4; purge them\n"
    )


async def test_a_purge_asks_and_deletes_what_is_parked(table: asyncpg.Connection, url: str) -> None:
    refused = await messages(url, "purge", answer="n\n")
    assert (refused.status, refused.output) == (1, "")
    assert refused.errors == "Delete 2 parked messages? [y/N] outbox: nothing was done\n"
    assert await ids(table) == [1, 2, 3, 4, 5]

    told = await messages(url, "purge", answer="y\n")
    assert (told.status, told.output) == (0, "2 messages deleted\n")
    assert await ids(table) == [1, 2, 5]


async def test_a_purge_deletes_only_what_its_question_counted(table: asyncpg.Connection, url: str) -> None:
    async with asked("messages", "purge", OUTBOX_DATABASE_URL=url) as answer:
        await table.execute(
            "INSERT INTO outbox_table (routing_key, body, parked_at) "
            "SELECT 'late', '1', now() FROM generate_series(1, 500)"
        )
        # As many match now as were counted, but others: one is sent again, one with a smaller id is parked.
        await table.execute("UPDATE outbox_table SET parked_at = NULL WHERE id = 4")
        await table.execute("UPDATE outbox_table SET parked_at = now() WHERE id = 1")
        told = await answer("y")
    assert "Delete 2 parked messages? [y/N]" in told.errors
    assert (told.status, told.output) == (
        0,
        "1 message deleted, and 1 left, which is no longer parked or is being sent\n",
    )
    assert await ids(table, "id <= 5") == [1, 2, 4, 5]
    assert len(await ids(table, "routing_key = 'late'")) == 500


async def test_an_unasked_purge_ignores_what_is_emitted_meanwhile(
    table: asyncpg.Connection, url: str
) -> None:
    await table.execute(
        "INSERT INTO outbox_table (routing_key, body) SELECT 'bulk', '1' FROM generate_series(1, 1500)"
    )
    await table.execute(
        "CREATE FUNCTION emit_more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO outbox_table (routing_key, body) SELECT 'late', '1' FROM generate_series(1, 500) "
        "WHERE (SELECT count(*) FROM outbox_table WHERE id > 5) < 2500; "
        "RETURN NULL; END $$"
    )
    # A writer that is as fast as the purge: it emits more with each deletion.
    await table.execute(
        "CREATE TRIGGER emit_more AFTER DELETE ON outbox_table FOR EACH STATEMENT "
        "EXECUTE FUNCTION emit_more()"
    )
    told = await messages(url, "purge", "--state", "pending", "--yes", "-o", "json")
    assert json.loads(told.output) == {"matched": 1501, "deleted": 1501}
    late = await table.fetchval("SELECT count(*) FROM outbox_table WHERE routing_key = 'late'")
    assert late == await table.fetchval("SELECT count(*) FROM outbox_table WHERE id > 5") > 0


async def test_a_retry_takes_only_what_was_parked_when_it_began(table: asyncpg.Connection, url: str) -> None:
    await table.execute(
        "CREATE FUNCTION park_more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO outbox_table (routing_key, body, parked_at) SELECT 'late', '1', now() "
        "WHERE (SELECT count(*) FROM outbox_table) < 10; "
        "RETURN NULL; END $$"
    )
    await table.execute(
        "CREATE TRIGGER park_more AFTER UPDATE ON outbox_table FOR EACH STATEMENT "
        "EXECUTE FUNCTION park_more()"
    )
    told = await messages(url, "retry", "-o", "json")
    assert json.loads(told.output) == {"matched": 2, "retried": 2, "held_by_timers": []}
    assert len(await ids(table, "parked_at IS NOT NULL")) == 1


async def test_a_purge_that_nobody_answers_deletes_nothing(table: asyncpg.Connection, url: str) -> None:
    told = await messages(url, "purge")
    assert told.status == 1
    assert told.errors.endswith(
        "outbox: nothing was done, since nobody answered the question; pass --yes to do it unasked\n"
    )
    assert await ids(table) == [1, 2, 3, 4, 5]


async def test_a_purge_takes_what_waits_only_where_it_is_asked_for(
    table: asyncpg.Connection, url: str
) -> None:
    named = await messages(url, "purge", "1", "--yes")
    assert named.status == 1
    assert await ids(table) == [1, 2, 3, 4, 5]

    asked = await messages(url, "purge", "--state", "pending", "--state", "delayed", answer="y\n")
    assert "Delete 2 pending or delayed messages, which nobody has got? [y/N]" in asked.errors
    assert await ids(table) == [3, 4, 5]


async def test_a_dry_run_of_a_purge_deletes_nothing(table: asyncpg.Connection, url: str) -> None:
    told = await messages(url, "purge", "--state", "sent", "--state", "parked", "--dry-run")
    assert told.output == "3 sent or parked messages would be deleted\n"
    assert await ids(table) == [1, 2, 3, 4, 5]


async def test_a_purge_of_thousands_respects_its_limit_and_leaves_what_a_relay_has_locked(
    table: asyncpg.Connection, url: str
) -> None:
    await table.execute(
        "INSERT INTO outbox_table (routing_key, body, sent_at) "
        "SELECT 'bulk', '1', now() FROM generate_series(1, 2500)"
    )
    async with table.transaction():
        await table.execute("SELECT FROM outbox_table WHERE id = 5 FOR UPDATE")
        told = await messages(url, "purge", "--state", "sent", "--limit", "2400", "--yes", "-o", "json")
    assert json.loads(told.output) == {"matched": 2400, "deleted": 2399}
    assert 5 in await ids(table, "sent_at IS NOT NULL")
    assert len(await ids(table, "sent_at IS NOT NULL")) == 102


async def test_behind_a_pooler_in_transaction_mode_everything_works_as_well(
    table: asyncpg.Connection, url: str
) -> None:
    with PgBouncer(url) as pooler:
        pooler.start("transaction", in_turn=True)
        pooler.open_sessions(3)
        for _ in range(3):
            listed = json.loads((await messages(pooler.url, "list", "-k", "#", "-o", "json")).output)
            assert [row["id"] for row in listed] == [1, 2, 3, 4]
        assert "routing key:  user.created" in (await messages(pooler.url, "show", "1")).output
        assert (await messages(pooler.url, "retry", "3")).output == "1 message will be sent again\n"
        assert (await messages(pooler.url, "purge", "--yes")).output == "1 message deleted\n"
        checked = await outbox_beside("schema", "check", OUTBOX_DATABASE_URL=pooler.url)
        assert (checked.status, checked.output) == (0, 'table "outbox_table" is as it should be\n')
    assert await ids(table) == [1, 2, 3, 5]


async def test_a_missing_table_is_one_line_with_the_cure(postgres_url: str) -> None:
    told = await messages(postgres_url, "list")
    assert told.status == 1
    assert told.errors == (
        'outbox: relation "outbox_table" does not exist; '
        "run `outbox schema create`, or name the table with --table\n"
    )


async def test_a_missing_permission_is_one_line_with_the_cure(table: asyncpg.Connection, url: str) -> None:
    role = "reader_" + urlsplit(url).path.removeprefix("/")
    await table.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'geheim'")
    try:
        parts = urlsplit(url)
        reader = urlunsplit(parts._replace(netloc=f"{role}:geheim@{parts.netloc.rpartition('@')[2]}"))
        told = await messages(reader, "list")
    finally:
        await table.execute(f"DROP ROLE {role}")
    assert told.status == 1
    assert told.errors == (
        "outbox: permission denied for table outbox_table; "
        "grant the user of the database URL this right, or use another user\n"
    )
