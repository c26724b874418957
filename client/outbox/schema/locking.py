"""The advisory lock under which a table is created, upgraded and dropped."""

from outbox.table import TableName


def advisory_key(table_name: str | TableName) -> int:
    """The key of the table's lock, the same in every process and version: 64 bits, signed."""
    # Imported here because an application that only emits never needs it, and hashlib loads OpenSSL.
    import hashlib

    digest = hashlib.sha256(b"outbox " + TableName.parse(table_name).sql.encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def lock_sql(table: TableName) -> str:
    """PL/pgSQL that waits for everybody else who is changing this table's schema."""
    return f"""
    -- Sessions that create the same object at once collide in the catalog, with IF NOT EXISTS or without.
    PERFORM pg_advisory_xact_lock({advisory_key(table)});
"""
