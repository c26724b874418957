"""Finds what keeps vacuum from removing dead rows of tables of a database."""

from typing import Any

import asyncpg

from outbox_core.horizon_holder import Holder, HolderKind

# A session keeps what its snapshot (xmin) sees, and what was deleted since its own xid. The snapshot of a
# session of another database keeps nothing here. Its xid does: while it runs, it is the xmin of the snapshots
# that are taken here. So of several with the same xmin, the one whose own xid it is comes first.
# VACUUM ignores VACUUMs, a slot's catalog_xmin keeps catalogs only, and an invalidated slot keeps nothing.
#
# Names of another database may be in another encoding, and a gid may have control characters: none is read.
_OLDEST = r"""
SELECT
    kind, pid, is_active, xid::text::bigint AS xid, pg_catalog.age(xid) AS transactions, began_at,
    extract(epoch FROM pg_catalog.clock_timestamp() - began_at)::float8 AS seconds,
    CASE WHEN name::text ~ '^[ -~]+$' THEN name END AS name,
    CASE WHEN role::text ~ '^[ -~]+$' THEN role END AS role,
    CASE WHEN database::text ~ '^[ -~]+$' THEN database END AS database
FROM (
    SELECT
        CASE WHEN datid IS NULL THEN 'standby' ELSE 'session' END AS kind, pid, true AS is_active,
        application_name AS name, usename AS role, datname AS database, xact_start AS began_at, leader_pid,
        xid, is_own
    FROM pg_catalog.pg_stat_activity
    CROSS JOIN LATERAL (VALUES (backend_xid, true), (backend_xmin, false)) AS held (xid, is_own)
    WHERE pid <> pg_catalog.pg_backend_pid()
        AND pid NOT IN (SELECT pid FROM pg_catalog.pg_stat_progress_vacuum)
        AND CASE
            WHEN datid IS NULL THEN pid IN (SELECT pid FROM pg_catalog.pg_stat_replication)
            ELSE is_own OR datname = pg_catalog.current_database()
        END
    UNION ALL
    SELECT
        'prepared_transaction', NULL, true, gid, owner, database, prepared, NULL, transaction, true
    FROM pg_catalog.pg_prepared_xacts
    UNION ALL
    SELECT
        'replication_slot', active_pid, active, slot_name, NULL, NULL, NULL, NULL, xmin, false
    FROM pg_catalog.pg_replication_slots
    WHERE wal_status IS DISTINCT FROM 'lost'
) AS holders
WHERE xid IS NOT NULL
ORDER BY pg_catalog.age(xid) DESC, is_own DESC, began_at, leader_pid NULLS FIRST, pid
LIMIT 1
"""


async def oldest_holder(connection: Any) -> Holder | None:
    """Look, on an asyncpg connection without a transaction.

    None if nothing holds the horizon, and if the role may not read Postgres's statistics views.
    """
    try:
        async with connection.transaction(isolation="read_committed", readonly=True):
            row = await connection.fetchrow(_OLDEST)
    except asyncpg.InsufficientPrivilegeError:
        return None
    if row is None:
        return None
    return Holder(**{**row, "kind": HolderKind(row["kind"])})
