"""Secrets by reference on a real API server, by somebody who may get and watch them."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ForbiddenError
from outbox_operator.cluster.kinds import SECRET, Manifest, path
from outbox_operator.cluster.secret_watch import SecretWatch
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.bridge import bridge
from tests.operator.control_plane.identity import Identity, identity, rule
from tests.operator.control_plane.waiting import until

_RIGHTS = (rule("", "secrets", "get watch"),)

Told = list[tuple[str, str]]
Calls = list[tuple[str, str]]


@pytest.fixture
def reader(api: Api, namespace: str, tmp_path: Path) -> Identity:
    return identity(api, namespace, tmp_path, {namespace: _RIGHTS})


@pytest.fixture
async def connection(reader: Identity) -> AsyncIterator[Connection]:
    connection = await Connection.open({"KUBECONFIG": str(reader.kubeconfig)})
    yield connection
    await connection.close()


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def calls() -> Calls:
    return []


@pytest.fixture
async def secrets(connection: Connection, told: Told, calls: Calls) -> AsyncIterator[SecretWatch]:
    cluster = Cluster(connection, on_call=lambda verb, outcome: calls.append((verb, outcome)))
    async with SecretWatch(cluster, lambda *place: told.append(place)) as secrets:
        yield secrets


def _manifest(name: str, data: dict[str, str]) -> Manifest:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name}, "data": encoded}


def _make(api: Api, namespace: str, name: str = "db", **data: str) -> None:
    api.request("POST", path(SECRET, namespace), _manifest(name, data))


def _change(api: Api, namespace: str, name: str = "db", **data: str) -> None:
    patch = _manifest(name, data)
    api.request("PATCH", path(SECRET, namespace, name), patch, "application/merge-patch+json")


async def test_a_secret_that_appears_changes_and_goes_is_told_each_time(
    api: Api, secrets: SecretWatch, told: Told, namespace: str
) -> None:
    secrets.follow(namespace, "db")
    assert await secrets.read(namespace, "db") is None
    _make(api, namespace, key="one")
    await until("it appears", lambda: len(told) == 1)
    assert await secrets.read(namespace, "db") == {"key": b"one"}
    _change(api, namespace, key="two")
    await until("it changes", lambda: len(told) == 2)
    assert await secrets.read(namespace, "db") == {"key": b"two"}
    api.request("DELETE", path(SECRET, namespace, "db"))
    await until("it goes", lambda: len(told) == 3)
    assert await secrets.read(namespace, "db") is None
    assert told == [(namespace, "db")] * 3


async def test_a_secret_is_asked_for_once_however_often_it_is_read(
    api: Api, secrets: SecretWatch, calls: Calls, told: Told, namespace: str
) -> None:
    _make(api, namespace, key="one")
    secrets.follow(namespace, "db")
    await until("it is watched", lambda: ("get", "ok") in calls)
    before = len(calls)
    for _ in range(10):
        assert await secrets.read(namespace, "db") == {"key": b"one"}
    assert len(calls) == before
    assert told == []


async def test_a_label_on_a_secret_is_no_news(
    api: Api, secrets: SecretWatch, told: Told, namespace: str
) -> None:
    _make(api, namespace, key="one")
    secrets.follow(namespace, "db")
    assert await secrets.read(namespace, "db")
    patch = {"metadata": {"labels": {"a": "b"}}}
    api.request("PATCH", path(SECRET, namespace, "db"), patch, "application/merge-patch+json")
    _change(api, namespace, key="two")
    await until("the change after it is told", lambda: told)
    assert told == [(namespace, "db")]


async def test_a_secret_is_watched_although_only_other_kinds_were_written_since_it_was_made(
    api: Api, secrets: SecretWatch, told: Told, calls: Calls, namespace: str
) -> None:
    """An API server whose etcd does not tell it of progress knows no newer state of Secrets then."""
    _make(api, namespace, key="one")
    for number in range(3):
        api.request(
            "POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": f"n{number}"}}
        )
    secrets.follow(namespace, "db")
    await until("it is watched", lambda: ("watch", "ok") in calls and ("get", "ok") in calls)
    _change(api, namespace, key="two")
    await until("its change is told", lambda: told)
    assert calls.count(("watch", "ok")) == 1


async def test_only_what_is_referred_to_is_known(
    api: Api, secrets: SecretWatch, told: Told, calls: Calls, namespace: str
) -> None:
    for name in ("a", "b", "c"):
        _make(api, namespace, name, key=name)
    secrets.set_references({(namespace, "a"), (namespace, "b")})
    for name in ("a", "b"):
        assert await secrets.read(namespace, name) == {"key": name.encode()}
    # Else the first may be given up before it is watched.
    await until("two watches are there", lambda: calls.count(("watch", "ok")) == 2)
    secrets.set_references({(namespace, "b"), (namespace, "c")})
    assert await secrets.read(namespace, "c") == {"key": b"c"}
    await until("a third watch is there", lambda: calls.count(("watch", "ok")) == 3)
    _change(api, namespace, "a", key="another")
    _change(api, namespace, "b", key="another")
    await until("b is told", lambda: told)
    assert told == [(namespace, "b")]
    # Nobody follows it: it is asked for each time.
    assert await secrets.read(namespace, "a") == {"key": b"another"}


async def test_a_secret_that_nobody_follows_is_not_kept(
    api: Api, secrets: SecretWatch, calls: Calls, namespace: str
) -> None:
    _make(api, namespace, key="one")
    for _ in range(2):
        assert await secrets.read(namespace, "db") == {"key": b"one"}
    assert calls == [("get", "ok"), ("get", "ok")]


async def test_a_missing_right_is_the_readers_to_hear(
    secrets: SecretWatch, caplog: pytest.LogCaptureFixture
) -> None:
    secrets.follow("kube-system", "db")
    with pytest.raises(ForbiddenError, match="the operator may not get secrets in namespace kube-system"):
        await secrets.read("kube-system", "db")
    await until("the watch says so too", lambda: "secret not watched" in caplog.text)


async def test_what_happened_to_a_secret_while_the_server_was_away_is_told_afterwards(
    api: Api, reader: Identity, told: Told, namespace: str
) -> None:
    _make(api, namespace, "changed", key="one")
    _make(api, namespace, "gone", key="one")
    references = {(namespace, "changed"), (namespace, "gone"), (namespace, "made")}
    async with bridge(reader.kubeconfig) as (way, kubeconfig):
        connection = await Connection.open({"KUBECONFIG": str(kubeconfig)})
        async with SecretWatch(Cluster(connection), lambda *place: told.append(place)) as secrets:
            secrets.set_references(references)
            for place in references:
                await secrets.read(*place)
            await way.cut()
            _change(api, namespace, "changed", key="two")
            api.request("DELETE", path(SECRET, namespace, "gone"))
            _make(api, namespace, "made", key="one")
            assert told == []
            await way.open()
            await until("all three are told", lambda: set(told) == references)
            assert await secrets.read(namespace, "changed") == {"key": b"two"}
            assert await secrets.read(namespace, "gone") is None
            assert await secrets.read(namespace, "made") == {"key": b"one"}
        await connection.close()


async def test_a_connection_that_breaks_alone_is_made_again(
    api: Api, reader: Identity, told: Told, namespace: str
) -> None:
    async with bridge(reader.kubeconfig) as (way, kubeconfig):
        connection = await Connection.open({"KUBECONFIG": str(kubeconfig)})
        async with SecretWatch(Cluster(connection), lambda *place: told.append(place)) as secrets:
            secrets.follow(namespace, "db")
            assert await secrets.read(namespace, "db") is None
            await way.drop()
            _make(api, namespace, key="one")
            await until("it is told", lambda: told == [(namespace, "db")])
        await connection.close()


async def test_many_secrets_are_watched_at_once(
    api: Api, secrets: SecretWatch, told: Told, calls: Calls, namespace: str
) -> None:
    references = {(namespace, f"secret-{number}") for number in range(120)}
    secrets.set_references(references)
    await until("all are watched", lambda: calls.count(("watch", "ok")) == len(references))
    await asyncio.gather(*(secrets.read(*place) for place in references))
    for _, name in references:
        _make(api, namespace, name, key="one")
    await until("all are told", lambda: set(told) == references)
