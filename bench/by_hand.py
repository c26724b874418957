"""The same INSERT as a careful person writes it for each driver: the baseline of `emit` and `bulk_emit`."""

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import text

from tests.integration.doors import (
    Asyncpg,
    AsyncPsycopg,
    AsyncSqlAlchemyConnection,
    AsyncSqlAlchemySession,
    DjangoAlias,
    Door,
    Psycopg,
    Psycopg2,
    SqlAlchemyConnection,
    SqlAlchemySession,
)

COLUMNS = "message_id, routing_key, body, content_type, tracking_ids, send_after"
Body: TypeAlias = dict[str, Any]

_DOLLAR = f"INSERT INTO outbox_table ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, now())"
_PERCENT = f"INSERT INTO outbox_table ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, now())"
_NAMED = text(
    f"INSERT INTO outbox_table ({COLUMNS}) "
    "VALUES (:message_id, :routing_key, :body, :content_type, CAST(:tracking_ids AS json), now())"
)


def _values(routing_key: str, body: Body) -> tuple[str, str, bytes, str, str]:
    message_id = str(uuid.uuid4())
    return message_id, routing_key, json.dumps(body).encode(), "application/json", json.dumps([message_id])


def _named(routing_key: str, body: Body) -> dict[str, Any]:
    message_id = uuid.uuid4()
    return {
        "message_id": message_id,
        "routing_key": routing_key,
        "body": json.dumps(body).encode(),
        "content_type": "application/json",
        "tracking_ids": json.dumps([str(message_id)]),
    }


async def _asyncpg(session: Any, routing_key: str, body: Body) -> None:
    await session.execute(_DOLLAR, *_values(routing_key, body))


async def _psycopg_async(session: Any, routing_key: str, body: Body) -> None:
    await session.execute(_PERCENT, _values(routing_key, body))


async def _sqlalchemy_async(session: Any, routing_key: str, body: Body) -> None:
    await session.execute(_NAMED, _named(routing_key, body))


def _psycopg(session: Any, routing_key: str, body: Body) -> None:
    session.execute(_PERCENT, _values(routing_key, body))


def _psycopg2(session: Any, routing_key: str, body: Body) -> None:
    with session.cursor() as cursor:
        cursor.execute(_PERCENT, _values(routing_key, body))


def _sqlalchemy(session: Any, routing_key: str, body: Body) -> None:
    session.execute(_NAMED, _named(routing_key, body))


def _django(session: Any, routing_key: str, body: Body) -> None:
    from django.db import connections

    with connections[session].cursor() as cursor:
        cursor.execute(_PERCENT, _values(routing_key, body))


INSERTS: dict[type[Door], Callable[[Any, str, Body], Any]] = {
    AsyncSqlAlchemySession: _sqlalchemy_async,
    AsyncSqlAlchemyConnection: _sqlalchemy_async,
    SqlAlchemySession: _sqlalchemy,
    SqlAlchemyConnection: _sqlalchemy,
    Asyncpg: _asyncpg,
    AsyncPsycopg: _psycopg_async,
    Psycopg: _psycopg,
    Psycopg2: _psycopg2,
    DjangoAlias: _django,
}

_MANY_DOLLAR = (
    f"INSERT INTO outbox_table ({COLUMNS}) SELECT id, key, body, type, ids::json, now() "
    "FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::text[]) "
    "AS rows (id, key, body, type, ids)"
)
_MANY_PERCENT = (
    f"INSERT INTO outbox_table ({COLUMNS}) SELECT id, key, body, type, ids::json, now() "
    "FROM unnest(%s::uuid[], %s::text[], %s::bytea[], %s::text[], %s::text[]) "
    "AS rows (id, key, body, type, ids)"
)


def _arrays(routing_key: str, bodies: Sequence[Body]) -> list[list[Any]]:
    return [list(column) for column in zip(*(_values(routing_key, body) for body in bodies), strict=True)]


async def _asyncpg_many(session: Any, routing_key: str, bodies: Sequence[Body]) -> None:
    await session.execute(_MANY_DOLLAR, *_arrays(routing_key, bodies))


async def _psycopg_async_many(session: Any, routing_key: str, bodies: Sequence[Body]) -> None:
    await session.execute(_MANY_PERCENT, _arrays(routing_key, bodies))


async def _sqlalchemy_async_many(session: Any, routing_key: str, bodies: Sequence[Body]) -> None:
    connection = await session.connection()
    await connection.exec_driver_sql(_MANY_DOLLAR, tuple(_arrays(routing_key, bodies)))


def _psycopg_many(session: Any, routing_key: str, bodies: Sequence[Body]) -> None:
    session.execute(_MANY_PERCENT, _arrays(routing_key, bodies))


def _psycopg2_many(session: Any, routing_key: str, bodies: Sequence[Body]) -> None:
    with session.cursor() as cursor:
        cursor.execute(_MANY_PERCENT, _arrays(routing_key, bodies))


BULK_INSERTS: dict[type[Door], Callable[[Any, str, Sequence[Body]], Any]] = {
    AsyncSqlAlchemySession: _sqlalchemy_async_many,
    Asyncpg: _asyncpg_many,
    AsyncPsycopg: _psycopg_async_many,
    Psycopg: _psycopg_many,
    Psycopg2: _psycopg2_many,
}
