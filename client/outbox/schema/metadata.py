"""The outbox table as SQLAlchemy describes tables, for Alembic's autogenerate and for queries."""

import importlib
from typing import Any

from outbox.schema.trigger import DEFAULT_CHANNEL
from outbox.schema.upgrading import upgrade_sql
from outbox.table import COLUMNS, DEFAULT_TABLE, INDEXES, Column, Index, TableName


def table(
    metadata: Any,
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
) -> Any:
    """The outbox table as a `sqlalchemy.Table` in the given `MetaData`.

    `metadata.create_all()` makes its triggers and sets its storage parameters too. Autogenerate knows
    neither: add `op.execute(outbox.schema.upgrade_sql())` to the migration that it writes.
    """
    sqlalchemy = _sqlalchemy()
    parsed = TableName.parse(table_name)
    name = TableName(parsed.schema or metadata.schema, parsed.name)
    result = sqlalchemy.Table(
        _exactly(name.name),
        metadata,
        *(_column(column) for column in COLUMNS),
        *(_index(name, index) for index in INDEXES),
        schema=None if name.schema is None else _exactly(name.schema),
    )
    # DDL() substitutes percent signs.
    complete = sqlalchemy.DDL(upgrade_sql(name, channel, notify=notify).replace("%", "%%"))
    sqlalchemy.event.listen(result, "after_create", complete)
    return result


def _column(column: Column) -> Any:
    sqlalchemy = _sqlalchemy()
    return sqlalchemy.Column(
        column.name,
        _type(column.type),
        *([sqlalchemy.Identity(always=False)] if column.identity else []),
        primary_key=column.identity,
        nullable=column.nullable,
        server_default=None if column.default is None else sqlalchemy.text(column.default),
    )


def _index(name: TableName, index: Index) -> Any:
    sqlalchemy = _sqlalchemy()
    return sqlalchemy.Index(
        _exactly(name.derived(index.suffix)),
        *index.keys,
        unique=index.unique,
        postgresql_where=sqlalchemy.text(index.predicate),
    )


def _type(sql_type: str) -> Any:
    postgresql = importlib.import_module("sqlalchemy.dialects.postgresql")
    if sql_type == "timestamp with time zone":
        return postgresql.TIMESTAMP(timezone=True)
    if sql_type in ("json", "jsonb"):
        # Without it None would be stored as JSON's null.
        return getattr(postgresql, sql_type.upper())(none_as_null=True)
    return getattr(postgresql, sql_type.upper())()


def _exactly(name: str) -> Any:
    return _sqlalchemy().sql.quoted_name(name, quote=True)


def _sqlalchemy() -> Any:
    try:
        return importlib.import_module("sqlalchemy")
    except ModuleNotFoundError as error:
        raise ImportError(
            "outbox.schema.table() describes the table for SQLAlchemy; install sqlalchemy"
        ) from error
