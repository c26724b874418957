"""Connections that leave the machine without TLS are said, once, by who makes them."""

import logging
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from outbox import listen
from outbox_core.database import Database
from outbox_core.plaintext import is_plain
from outbox_operator.database import look
from outbox_operator.resources.references import SecretRef
from outbox_operator.resources.relay import Database as Wanted
from tests.integration.relaying import Traffic, traffic_between
from tests.integration.tls_postgres import TlsPostgres, tls_postgres
from tests.integration.wire import RoundTrips, counted
from tests.integration.working import Workshop, workshop_at


@pytest.fixture(scope="module")
def address() -> str:
    """An address of this machine that others can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            # Nothing is sent: it is the address by which the rest of the world would be reached.
            asking.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(asking.getsockname()[0])


@pytest.fixture
async def far_database(postgres_url: str, address: str) -> AsyncIterator[RoundTrips]:
    async with counted(postgres_url, address=address) as passed:
        yield passed


@pytest.fixture
async def far_broker(rabbitmq_url: str, address: str) -> AsyncIterator[RoundTrips]:
    async with counted(rabbitmq_url, address=address) as passed:
        yield passed


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def tls_server() -> Iterator[TlsPostgres]:
    with tls_postgres() as server:
        yield server


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said, without what it leads to."""
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return sorted(text.split()[3] for text in said if "has no TLS" in text)


async def test_a_relay_warns_of_a_database_and_a_broker_without_tls(
    traffic: Traffic, far_database: RoundTrips, far_broker: RoundTrips, caplog: pytest.LogCaptureFixture
) -> None:
    near = await traffic.relaying()
    await near.stop()
    assert warnings(caplog) == []
    far = await traffic.relaying(db_engine_url=far_database.url, rmq_connection_url=far_broker.url)
    await far.stop()
    assert warnings(caplog) == ["Postgres", "broker"]


async def test_a_worker_warns_of_a_database_and_a_broker_without_tls(
    workshop: Workshop,
    postgres_url: str,
    far_database: RoundTrips,
    far_broker: RoundTrips,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @listen("a", queue=workshop.queue(), exactly_once=True)
    async def handler(body: int) -> None: ...

    near = await workshop.working(handler, db_engine_url=postgres_url, auto_create_table=True)
    await near.stop()
    assert warnings(caplog) == []
    far = await workshop.working(
        handler, db_engine_url=far_database.url, rmq_connection_url=far_broker.url, auto_create_table=True
    )
    await far.stop()
    assert warnings(caplog) == ["Postgres", "broker"]


async def test_what_the_operator_sees_without_tls_is_known(
    postgres_url: str, far_database: RoundTrips
) -> None:
    wanted = Wanted(secret_ref=SecretRef(name="x"), manage_schema="Create")
    assert not (await look(postgres_url, wanted)).is_plain
    assert (await look(far_database.url, wanted)).is_plain


async def test_a_connection_with_tls_is_not_plain(tls_server: TlsPostgres, address: str) -> None:
    async with counted(tls_server.url, address=address) as passed:
        connection = await Database(f"{passed.url}?sslmode=require").connect()
        assert not is_plain(connection)
        await connection.close()
