"""A tenant that wishes others ill: whatever it writes and its servers answer, others are served as before."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from outbox_operator.broker.management import Management
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_process import DatabaseProcess
from outbox_operator.operator import Operator
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS
from outbox_operator.resources.relay import Database
from tests.integration.broker_access import serving
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.identity import identity
from tests.operator.counting import samples
from tests.operator.site import Site
from tests.unit.test_operator_faults import ERRORS

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def tenants(site: Site, tmp_path: Path) -> tuple[Site, Site]:
    """Two namespaces of one operator, with a broker and a database; what the first makes is the older."""
    other = f"test-{uuid4().hex[:12]}"
    site.api.make_namespace(other)
    rights = [right.manifest() for right in (*RESOURCE_RIGHTS, *LEASE_RIGHTS)]
    names = sorted((site.namespace, other))
    both = identity(site.api, site.namespace, tmp_path, dict.fromkeys(names, rights))
    first, second = (replace(site, namespace=name, identity=both) for name in names)
    return first, second


@asynccontextmanager
async def operating(tenants: tuple[Site, Site], **settings: Any) -> AsyncIterator[Operator]:
    names = tuple(each.namespace for each in tenants)
    async with tenants[0].operating(namespaces=names, **settings) as operator:
        yield operator


def create(site: Site, *manifests: Manifest) -> None:
    for manifest in manifests:
        site.api.create(manifest)


def internal_errors(operator: Operator) -> dict[str, float]:
    return {labels["part"]: value for labels, value in samples(operator.world.metrics.internal_errors)}


def is_told(site: Site, relay: Manifest) -> bool:
    """Whether the status says what is wrong."""
    said = site.condition(relay)
    return said.get("status") in ("False", "Unknown") and said["reason"] != "Pending"


async def until_served(site: Site, listener: Manifest) -> None:
    """Until a change of a listener has been carried out."""
    key = f"key.{uuid4().hex}"
    site.edit(listener, bindingKeys=[key])
    await site.until_condition(listener)
    assert (("outbox", key)) in site.bindings(f"{site.namespace}.{listener['metadata']['name']}")


# Taking what is another's.


async def test_a_queue_is_not_squatted_by_a_listener_that_the_broker_does_not_let_in(
    tenants: tuple[Site, Site],
) -> None:
    attacker, victim = tenants
    queue = f"{victim.namespace}.mails"
    squatter, owner = attacker.listener("squatter", queue=queue), victim.listener("mails", queue=queue)
    attacker.make_secret("shop-db", uri=attacker.postgres_url)
    attacker.make_secret("shop-rabbitmq", uri=f"amqp://guess:wrong@127.0.0.1:5672/{victim.vhost}")
    victim.make_secrets()
    create(attacker, attacker.relay(), squatter)
    async with operating(tenants):
        await attacker.until_condition(squatter, "RelayReady", "False", "AuthenticationFailed")
        create(victim, victim.relay(), owner)
        await victim.until_condition(owner)
        assert victim.namespace not in json.dumps(attacker.status(squatter)).replace(queue, "")
        # With valid credentials it is told that the queue is taken, and not by whom.
        attacker.change_secret("shop-rabbitmq", uri=attacker.rabbitmq_url)
        said = await attacker.until_condition(squatter, "TopologyReady", "False", "QueueOwnedBy")
        assert "belongs to an OutboxListener of another namespace" in said["message"]
        assert f"{victim.namespace}/" not in json.dumps(attacker.status(squatter))
        assert victim.condition(owner)["status"] == "True"


async def test_a_relay_without_its_secret_delays_no_deletion_of_another_namespace(
    tenants: tuple[Site, Site],
) -> None:
    idle, leaving = tenants
    relay = leaving.relay(deletionPolicy="Delete")
    leaving.make_secrets()
    create(idle, idle.relay())
    create(leaving, relay)
    async with operating(tenants, give_up_seconds=3600):
        await idle.until_condition(idle.relay(), "CredentialsValid", "False", "SecretMissing")
        await leaving.until_condition(relay)
        leaving.delete(relay)
        await leaving.until(lambda: leaving.is_gone(relay), "the end of the relay")
        assert "outbox" not in leaving.exchanges()


async def test_a_relay_that_names_a_broker_without_entering_it_keeps_no_exchange_of_another(
    tenants: tuple[Site, Site],
) -> None:
    attacker, leaving = tenants
    relay = leaving.relay(deletionPolicy="Delete")
    leaving.make_secrets()
    attacker.make_secret("shop-db", uri=attacker.postgres_url)
    attacker.make_secret("shop-rabbitmq", uri=f"amqp://guess:wrong@127.0.0.1:5672/{leaving.vhost}")
    create(attacker, attacker.relay())
    create(leaving, relay)
    async with operating(tenants, give_up_seconds=3600):
        await attacker.until_condition(attacker.relay(), "CredentialsValid", "False", "AuthenticationFailed")
        await leaving.until_condition(relay)
        leaving.delete(relay)
        await leaving.until(lambda: leaving.is_gone(relay), "the end of the relay")
        assert "outbox" not in leaving.exchanges()


async def test_a_listener_without_a_relay_keeps_no_delay_tier_of_another_namespace(
    tenants: tuple[Site, Site],
) -> None:
    attacker, victim = tenants
    stray = attacker.listener("stray", relayRef={"name": "nowhere"}, retryDelays=["2s"], paused=True)
    listener = victim.listener(retryDelays=["1s", "2s"])
    victim.make_secrets()
    create(attacker, stray)
    create(victim, victim.relay(), listener)
    async with operating(tenants, tier_grace_seconds=0.2, drift_seconds=0.5):
        await attacker.until_condition(stray, "Paused")
        await victim.until_condition(listener)
        assert "outbox.delay_2s" in victim.queues()
        victim.edit(listener, retryDelays=["1s"])
        await victim.until(lambda: "outbox.delay_2s" not in victim.queues(), "the end of an unused tier")


# Reaching what only the operator reaches.


async def test_hosts_that_are_not_listed_are_not_called(tenants: tuple[Site, Site]) -> None:
    hostile, healthy = tenants
    called: list[bytes] = []

    async def inside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with serving(inside) as url:
        relay, beside, mail = hostile.relay(), hostile.relay("beside"), healthy.listener()
        relay["spec"]["broker"]["managementUrl"] = url.replace("localhost", "127.0.0.2")
        beside["spec"]["database"] = {"secretRef": {"name": "inside"}}
        hostile.make_secret("inside", uri=f"postgresql://a:b@127.0.0.2:{url.rpartition(':')[2]}/x")
        for each in tenants:
            each.make_secrets()
        create(hostile, relay, beside)
        create(healthy, healthy.relay(), mail)
        async with operating(tenants, allowed_hosts=("127.0.0.1/32", "localhost")):
            for refused in (relay, beside):
                said = await hostile.until_condition(refused, "CredentialsValid", "False", "HostNotAllowed")
                assert 'host "127.0.0.2"' in said["message"]
            await healthy.until_condition(mail)
    assert called == []


async def test_connections_that_could_go_without_tls_are_refused_where_it_is_required(site: Site) -> None:
    relay = site.relay()
    site.make_secrets()
    site.api.create(relay)
    async with site.operating(require_tls=True):
        said = await site.until_condition(relay, "CredentialsValid", "False", "TlsRequired")
        assert said["message"].startswith("the broker could be entered without TLS")


# Stopping the operator.


async def swamp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A management API that answers with brackets."""
    body = b"[" * 200_000
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def database_that_sends(answer: bytes, endless: bytes = b"") -> Serve:
    """A server that refuses TLS, then answers the startup with this, and goes on with `endless` for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            [length] = struct.unpack("!i", await reader.readexactly(4))
            message = await reader.readexactly(length - 4)
            if message != struct.pack("!i", 80_877_103):
                break
            writer.write(b"N")
        writer.write(answer)
        while endless:
            writer.write(endless)
            await writer.drain()
        await reader.read()

    return serve


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


_ENTERED = message(b"R", struct.pack("!i", 0))
_READY = message(b"Z", b"I")
_NOTICE = message(b"N", b"SNOTICE\0MIt is me\0\0")

CRASHING = message(b"R", struct.pack("!i", 11) + b"\xff\xff")
"""The second message of an authentication before the first: asyncpg 0.32 follows a null pointer."""

DATABASES = (
    database_that_sends(b"\xff" * 1000),
    database_that_sends(message(b"R", b"")),
    database_that_sends(message(b"R", struct.pack("!i", 10) + b"NO-SUCH-SASL\0\0")),
    database_that_sends(CRASHING),
    database_that_sends(_ENTERED + message(b"S", b"client_encoding\0no-such\0") + _READY),
    database_that_sends(_ENTERED + message(b"S", b"server_version\0\xff\xfe\0") + _READY),
    database_that_sends(_ENTERED + message(b"K", b"") + _READY),
    database_that_sends(_ENTERED + _READY + _READY + message(b"T", b"\x7f\xff")),
    database_that_sends(message(b"E", b"S\xff\0C\xff\0")),
    database_that_sends(b"E\xff\xff\xff\xff"),
    database_that_sends(b"R\x7f\xff\xff\xff"),
    database_that_sends(b"", endless=_NOTICE * 50),
    database_that_sends(_ENTERED, endless=_NOTICE * 50),
)


def hostile_secrets() -> Iterator[dict[str, dict[str, str]]]:
    """What may be in the two Secrets of a relay."""
    for uri in (
        "amqp://a:b@a..b/x",
        "amqp://a:b@[::1/x",
        "amqp://a:b@" + "a," * 3000 + "b/x",
        "amqp://a:b@host:99999/x",
        "amqp://a:b@\u2100.example/x",
        "amqp://a:b@xn--0/x",
        "amqp://%00:%ff@127.0.0.1:1/%00",
    ):
        yield {"shop-rabbitmq": {"uri": uri}}
    for host in ("a..b", "\u0130" * 60, "x" * 5000, "127.0.0.1,127.0.0.1"):
        yield {"shop-rabbitmq": {"host": host, "username": "a", "password": "\n\x00\u2028"}}
    for uri in (
        "postgresql://a:b@a..b/x",
        "postgresql://a:b@%2F[",
        "postgresql://a:b@127.0.0.1:99999/x",
        "postgresql://a:b@127.0.0.1:1/x?sslrootcert=/proc/self/fd/2&sslmode=verify-full",
        "postgresql://a:b@127.0.0.1:1/x?sslmode=nonsense",
        "postgresql://a:b@127.0.0.1:1/x?sslnegotiation=nonsense",
        "postgresql://a:b@127.0.0.1:1/x?ssl_min_protocol_version=nonsense&sslmode=require",
        "postgresql://a:b@127.0.0.1:1/x?service=s&servicefile=/proc/self/fd/2",
        "postgresql://a@127.0.0.1:1/x?passfile=/proc/self/fd/2",
        "postgresql://a:b@127.0.0.1:1/x?connect_timeout=nan",
        "postgresql://a:b@127.0.0.1:1/x?connect_timeout=inf",
        "postgresql://a:b@127.0.0.1:1/x?application_name=%00",
        "postgresql://a:b@127.0.0.1:1/%00",
        "postgresql://a:b@/x?host=/proc/self/fd",
        "postgresql://a:b@@x/x",
    ):
        yield {"shop-db": {"uri": uri}}


async def test_no_resource_secret_or_server_of_a_tenant_stops_another(tenants: tuple[Site, Site]) -> None:
    hostile, healthy = tenants
    mail = healthy.listener()
    healthy.make_secrets()
    create(healthy, healthy.relay(), mail)
    relays = []
    async with AsyncExitStack() as servers, operating(tenants) as operator:
        await healthy.until_condition(mail)
        there = await servers.enter_async_context(serving(swamp))
        relay = hostile.relay("deep")
        relay["spec"]["broker"]["managementUrl"] = there
        relays.append(relay)
        hostile.make_secrets()
        for number, secrets in enumerate(hostile_secrets()):
            relay = hostile.relay(f"secret-{number}")
            relay["spec"]["broker"].pop("managementUrl")
            for name, part in (("shop-rabbitmq", "broker"), ("shop-db", "database")):
                if name in secrets:
                    hostile.make_secret(f"{name}-{number}", **secrets[name])
                    relay["spec"][part]["secretRef"] = {"name": f"{name}-{number}"}
            relays.append(relay)
        for number, serve in enumerate(DATABASES):
            url = await servers.enter_async_context(serving(serve))
            hostile.make_secret(f"db-{number}", uri=f"{url.replace('http://', 'postgresql://a:b@')}/x")
            relays.append(hostile.relay(f"db-{number}", database={"secretRef": {"name": f"db-{number}"}}))
        create(hostile, *relays)
        for relay in relays:
            name = relay["metadata"]["name"]
            await hostile.until(lambda: is_told(hostile, relay), f"a condition of {name}")  # noqa: B023 - called here
        await until_served(healthy, mail)
        # Only what the servers of databases answered was unexpected, and asyncpg's end at one of them.
        assert set(internal_errors(operator)) <= {"database"}


async def test_an_error_of_any_type_ends_only_the_attempt_of_its_own_resource(
    tenants: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile, healthy = tenants
    mail = healthy.listener()
    snapshot, look = Management.snapshot, DatabaseProcess.look

    async def failing_snapshot(self: Management) -> Any:
        if self._access.username.isdigit():
            raise ERRORS[int(self._access.username)]
        return await snapshot(self)

    async def failing_look(self: DatabaseProcess, access: DatabaseAccess, wanted: Database) -> Any:
        if (user := urlsplit(access.url).username or "").isdigit():
            raise ERRORS[int(user)]
        return await look(self, access, wanted)

    monkeypatch.setattr(Management, "snapshot", failing_snapshot)
    monkeypatch.setattr(DatabaseProcess, "look", failing_look)
    relays = []
    for number in range(len(ERRORS)):
        hostile.make_secret(f"broker-{number}", uri=f"amqp://{number}:x@127.0.0.1:1/x")
        hostile.make_secret(f"db-{number}", uri=f"postgresql://{number}:x@127.0.0.1:1/x")
        relay = hostile.relay(f"error-{number}", database={"secretRef": {"name": f"db-{number}"}})
        relay["spec"]["broker"]["secretRef"] = {"name": f"broker-{number}"}
        relays.append(relay)
    healthy.make_secrets()
    create(hostile, *relays)
    create(healthy, healthy.relay(), mail)
    async with operating(tenants) as operator:
        for relay in relays:
            await hostile.until_condition(relay, "CredentialsValid", "False", "InternalError")
            await hostile.until_condition(relay, "DatabaseReady", "Unknown", "InternalError")
        await healthy.until_condition(mail)
        await until_served(healthy, mail)
        assert set(internal_errors(operator)) == {"broker", "database"}
