"""A table made by the original library, upgraded in place: no row is lost and none changes its state."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outbox import schema
from tests.integration.sleeping import asleep

ORIGINAL = """
CREATE TABLE {table} (
    id SERIAL PRIMARY KEY,
    routing_key TEXT NOT NULL,
    body BYTEA NOT NULL,
    tracking_ids JSON NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expiration INTERVAL,
    send_after TIMESTAMPTZ NOT NULL,
    sent_at TIMESTAMPTZ
);
CREATE INDEX outbox_pending_idx ON {table} (send_after, created_at) WHERE sent_at IS NULL;
CREATE INDEX outbox_cleanup_idx ON {table} (sent_at) WHERE sent_at IS NOT NULL;
CREATE OR REPLACE FUNCTION notify_outbox_insert() RETURNS TRIGGER AS $$
BEGIN
    IF NEW.send_after <= NOW() THEN
        PERFORM pg_notify('outbox_channel', '');
    END IF;
    RETURN NEW;
END;
$$ LANGUAGE plpgsql;
CREATE TRIGGER outbox_notify_trigger AFTER INSERT ON {table}
    FOR EACH ROW EXECUTE FUNCTION notify_outbox_insert();
"""
ROWS = """
INSERT INTO {table} (routing_key, body, tracking_ids, expiration, send_after, sent_at)
SELECT
    'key.' || n, convert_to('{{"n": ' || n || '}}', 'UTF8'), json_build_array('t' || n),
    CASE WHEN n % 3 = 0 THEN interval '90 seconds' END,
    timestamptz '2024-05-01 12:00+00' + n * interval '1 minute',
    CASE WHEN n % 2 = 0 THEN timestamptz '2024-05-02 12:00+00' END
FROM generate_series(1, 1000) AS n;
DELETE FROM {table} WHERE id > 990;
"""
ORIGINAL_COLUMNS = "id, routing_key, body, tracking_ids::text, created_at, expiration, send_after, sent_at"


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def make_original(connection: Any, table: str = "outbox_table") -> None:
    await connection.execute(ORIGINAL.format(table=table))
    await connection.execute(ROWS.format(table=table))


async def rows(connection: Any, table: str = "outbox_table") -> list[Any]:
    found: list[Any] = await connection.fetch(f"SELECT {ORIGINAL_COLUMNS} FROM {table} ORDER BY id")
    return found


async def names(connection: Any, catalog: str, column: str) -> set[str]:
    found = await connection.fetch(f"SELECT {column} AS name FROM {catalog}")
    return {row["name"] for row in found}


@pytest.mark.parametrize("table", ["outbox_table", "outbox", "shop.outbox_table", '"Shop"."Out""box"'])
async def test_every_row_is_kept_as_it_was(connection: Any, table: str) -> None:
    await connection.execute('CREATE SCHEMA shop; CREATE SCHEMA "Shop"')
    await make_original(connection, table)
    before = await rows(connection, table)
    assert len(before) == 990
    for _ in range(2):
        await schema.upgrade(connection, table)
        assert await schema.check(connection, table) == []
        assert await rows(connection, table) == before
    distinct, pending, sent, parked = await connection.fetchrow(
        f"""
        SELECT count(DISTINCT message_id), count(*) FILTER (WHERE sent_at IS NULL AND parked_at IS NULL),
            count(sent_at), count(parked_at)
        FROM {table}
        """
    )
    assert (distinct, pending, sent, parked) == (990, 495, 495, 0)


async def test_the_steps_of_a_plan_upgrade_the_original_too(connection: Any) -> None:
    await make_original(connection)
    before = await rows(connection)
    for step in await schema.plan_upgrade(connection):
        await connection.execute(step.sql)
    assert await schema.plan_upgrade(connection) == []
    assert await schema.check(connection) == []
    assert await rows(connection) == before


async def test_a_second_upgrade_keeps_the_message_ids(connection: Any) -> None:
    await make_original(connection)
    await schema.upgrade(connection)
    query = "SELECT id, message_id FROM outbox_table ORDER BY id"
    before = await connection.fetch(query)
    await schema.upgrade(connection)
    assert await connection.fetch(query) == before


async def test_ids_go_on_where_they_were_and_beyond_an_integer(connection: Any) -> None:
    await make_original(connection)
    insert = "INSERT INTO outbox_table (routing_key, body) VALUES ('a', '') RETURNING id"
    await schema.upgrade(connection)
    # The last used one was 1000, though its row is gone.
    assert await connection.fetchval(insert) > 1000
    await schema.upgrade(connection)
    sequence = await connection.fetchval("SELECT pg_get_serial_sequence('outbox_table', 'id')")
    await connection.execute(f"SELECT setval('{sequence}', 3000000000)")
    assert await connection.fetchval(insert) == 3000000001


async def test_the_originals_objects_are_gone(connection: Any) -> None:
    await make_original(connection)
    await schema.upgrade(connection)
    indexes = await names(connection, "pg_indexes WHERE tablename = 'outbox_table'", "indexname")
    assert indexes == {
        "outbox_table_pkey",
        "outbox_table_pending_idx",
        "outbox_table_sent_idx",
        "outbox_table_parked_idx",
        "outbox_table_timer_idx",
        "outbox_table_ordering_idx",
        "outbox_table_keyed_idx",
    }
    assert await names(connection, "pg_trigger WHERE NOT tgisinternal", "tgname") == {
        "outbox_table_notify",
        "outbox_table_notify_sooner",
    }
    assert not await names(connection, "pg_proc WHERE proname = 'notify_outbox_insert'", "proname")
    assert await names(connection, "pg_sequences", "sequencename") == {"outbox_table_id_seq"}


async def test_a_prebuilt_index_takes_the_place_of_the_originals(connection: Any) -> None:
    await make_original(connection)
    await connection.execute(
        "CREATE INDEX CONCURRENTLY outbox_table_sent_idx ON outbox_table (sent_at) WHERE sent_at IS NOT NULL"
    )
    await schema.upgrade(connection)
    assert await schema.check(connection) == []
    indexes = await names(connection, "pg_indexes", "indexname")
    assert "outbox_cleanup_idx" not in indexes


async def test_objects_of_other_tables_stay(connection: Any) -> None:
    await connection.execute("CREATE SCHEMA shop")
    await make_original(connection)
    await make_original(connection, "shop.outbox_table")
    await connection.execute(
        """
        DROP TRIGGER outbox_notify_trigger ON shop.outbox_table;
        CREATE TRIGGER outbox_notify_trigger AFTER INSERT ON shop.outbox_table
            FOR EACH ROW EXECUTE FUNCTION notify_outbox_insert();
        """
    )
    await schema.upgrade(connection, "public.outbox_table")
    assert await names(connection, "pg_indexes WHERE schemaname = 'shop'", "indexname") == {
        "outbox_table_pkey",
        "outbox_pending_idx",
        "outbox_cleanup_idx",
    }
    # The other table's trigger still uses it.
    assert await names(connection, "pg_proc WHERE proname = 'notify_outbox_insert'", "proname")
    await connection.execute(
        "INSERT INTO shop.outbox_table (routing_key, body, tracking_ids, send_after)"
        " VALUES ('a', '', '[]', now())"
    )
    await schema.upgrade(connection, "shop.outbox_table")
    assert not await names(connection, "pg_proc WHERE proname = 'notify_outbox_insert'", "proname")


async def test_a_users_own_columns_indexes_and_defaults_stay(connection: Any) -> None:
    await make_original(connection)
    await connection.execute(
        """
        ALTER TABLE outbox_table ADD COLUMN tenant text NOT NULL DEFAULT 'acme';
        CREATE INDEX mine ON outbox_table (tenant);
        CREATE SEQUENCE numbers;
        ALTER TABLE outbox_table ALTER id SET DEFAULT nextval('numbers') + 5000;
        DROP SEQUENCE outbox_table_id_seq;
        ALTER TABLE outbox_table ALTER created_at SET DEFAULT '2020-01-01 00:00+00';
        """
    )
    await schema.upgrade(connection)
    assert await schema.check(connection) == []
    assert "mine" in await names(connection, "pg_indexes", "indexname")
    insert = "INSERT INTO outbox_table (routing_key, body) VALUES ('a', '') RETURNING *"
    row = await connection.fetchrow(insert)
    assert (row["id"], row["tenant"], row["created_at"].year) == (5001, "acme", 2020)


async def test_nulls_of_a_half_made_column_are_filled(connection: Any) -> None:
    await make_original(connection)
    await connection.execute(
        "ALTER TABLE outbox_table ADD COLUMN message_id uuid, ADD COLUMN attempts integer"
    )
    await schema.upgrade(connection)
    assert await schema.check(connection) == []
    assert await connection.fetchval("SELECT count(DISTINCT message_id) FROM outbox_table") == 990


async def test_the_originals_insert_still_works(connection: Any) -> None:
    await make_original(connection)
    await schema.upgrade(connection)
    await connection.execute(
        "INSERT INTO outbox_table (routing_key, body, tracking_ids, expiration, send_after)"
        " VALUES ('a', '', '[]', NULL, now())"
    )


async def test_an_upgraded_table_notifies_once_a_statement(connection: Any, postgres_url: str) -> None:
    await make_original(connection)
    await schema.upgrade(connection)
    heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
        heard.put_nowait(payload)

    await connection.add_listener("outbox_channel", hear)
    async with asleep(postgres_url):
        await connection.execute(
            "INSERT INTO outbox_table (routing_key, body) SELECT 'a', '' FROM generate_series(1, 100)"
        )
    await connection.execute("NOTIFY outbox_channel, 'end'")
    assert await asyncio.wait_for(heard.get(), 10) == "public.outbox_table"
    assert await asyncio.wait_for(heard.get(), 10) == "end"
    await connection.remove_listener("outbox_channel", hear)


async def test_upgrading_nothing_says_to_create_it(connection: Any) -> None:
    with pytest.raises(asyncpg.RaiseError, match='table "outbox_table" does not exist') as caught:
        await schema.upgrade(connection)
    assert "outbox.schema.create_sql()" in (caught.value.hint or "")


async def test_a_failed_upgrade_changes_nothing(connection: Any) -> None:
    await make_original(connection)
    # A view on the column keeps Postgres from changing its type.
    await connection.execute("CREATE VIEW ids AS SELECT id FROM outbox_table")
    before = await rows(connection)
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="used by a view"):
        await schema.upgrade(connection)
    assert await rows(connection) == before
    assert "outbox_pending_idx" in await names(connection, "pg_indexes", "indexname")
