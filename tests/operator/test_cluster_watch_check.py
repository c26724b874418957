"""A watch that died is found out, by lists of a real API server."""

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path

import pytest

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import NotFoundError
from outbox_operator.cluster.kinds import LISTENER, RELAY, Kind, Manifest, path
from outbox_operator.cluster.store import Store
from outbox_operator.cluster.watch_check import WatchCheck
from tests.operator import manifests
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.identity import identity, rule
from tests.operator.control_plane.waiting import until

_RIGHTS = (
    rule("outbox.dev", "outboxrelays outboxlisteners", "list"),
    rule("apps", "deployments outboxthings", "list"),
)


@pytest.fixture
async def cluster(api: Api, namespace: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """By somebody who may list and not watch."""
    somebody = identity(api, namespace, tmp_path, {namespace: _RIGHTS})
    connection = await Connection.open({"KUBECONFIG": str(somebody.kubeconfig)})
    yield Cluster(connection)
    await connection.close()


@pytest.fixture
def store() -> Store:
    """One that nobody feeds but the test."""
    return Store()


@pytest.fixture
def check(cluster: Cluster, store: Store, namespace: str) -> WatchCheck:
    return WatchCheck(cluster, store, [namespace], patience_seconds=0)


def _make(api: Api, namespace: str, manifest: Manifest, name: str = "shop") -> Manifest:
    made = deepcopy(manifest)
    made["metadata"] = {"namespace": namespace, "name": name}
    return api.create(made)


async def test_a_store_that_knows_everything_is_no_problem(
    api: Api, check: WatchCheck, store: Store, namespace: str
) -> None:
    store.put(RELAY, _make(api, namespace, manifests.RELAY))
    for _ in range(3):
        await check.look()
    assert check.problem() is None


async def test_a_change_that_nobody_was_told_of_is_a_dead_watch(
    api: Api, check: WatchCheck, store: Store, namespace: str
) -> None:
    made = _make(api, namespace, manifests.RELAY)
    store.put(RELAY, made)
    await check.look()
    made["spec"]["replicas"] = 3
    edited = api.replace(made)
    await check.look()
    await check.look()
    assert (
        check.problem() == f"the watch of OutboxRelays is dead: {namespace}/shop changed and nobody was told"
    )
    store.put(RELAY, edited)
    await check.look()
    assert check.problem() is None


async def test_a_watch_that_never_tells_of_a_busy_object_is_dead_too(
    api: Api, check: WatchCheck, store: Store, namespace: str
) -> None:
    made = _make(api, namespace, manifests.RELAY)
    store.put(RELAY, made)
    for number in range(3):
        made = api.replace({**made, "metadata": {**made["metadata"], "labels": {"number": str(number)}}})
        await check.look()
    assert check.problem() is not None


async def test_new_objects_that_nobody_was_told_of_are_counted(
    api: Api, check: WatchCheck, namespace: str
) -> None:
    for name in ("a", "b", "c"):
        _make(api, namespace, manifests.LISTENER, name)
    await check.look()
    await check.look()
    assert (
        check.problem()
        == f"the watch of OutboxListeners is dead: {namespace}/a changed and nobody was told, nor of 2 others"
    )


async def test_a_watch_may_be_late_for_a_while(
    api: Api, cluster: Cluster, store: Store, namespace: str
) -> None:
    patient = WatchCheck(cluster, store, [namespace], patience_seconds=3600)
    _make(api, namespace, manifests.RELAY)
    for _ in range(3):
        await patient.look()
    assert patient.problem() is None


async def test_an_object_that_went_unseen_is_taken_out_of_the_store(
    api: Api, check: WatchCheck, store: Store, namespace: str
) -> None:
    store.put(RELAY, _make(api, namespace, manifests.RELAY))
    api.request("DELETE", path(RELAY, namespace, "shop"))
    told: list[tuple[Kind, str, str]] = []
    store.subscribe(lambda kind, namespace, name: told.append((kind, namespace, name)))
    await check.look()
    await check.look()
    assert not store.relays
    assert told == [(RELAY, namespace, "shop")]
    assert check.problem() is None


async def test_it_looks_now_and_then(api: Api, cluster: Cluster, store: Store, namespace: str) -> None:
    check = WatchCheck(cluster, store, [namespace], interval_seconds=0.02, patience_seconds=0)
    _make(api, namespace, manifests.RELAY)
    running = asyncio.create_task(check.run())
    await until("the dead watch is found out", lambda: check.problem() is not None)
    running.cancel()
    await asyncio.wait([running])


async def test_a_store_is_synced_when_all_that_is_there_has_come(
    api: Api, check: WatchCheck, store: Store, namespace: str
) -> None:
    relay = _make(api, namespace, manifests.RELAY)
    listener = _make(api, namespace, manifests.LISTENER)
    waiting = asyncio.create_task(check.wait_until_synced())
    store.put(RELAY, relay)
    await check.look()
    assert not store.synced.is_set()
    store.put(LISTENER, listener)
    async with asyncio.timeout(30):
        await waiting
    assert store.synced.is_set()


async def test_a_kind_that_is_not_defined_is_told_with_the_cure(
    cluster: Cluster, store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    undefined = Kind("apps/v1", "OutboxThing", "outboxthings")
    monkeypatch.setattr("outbox_operator.cluster.watch_check.WATCHED", (undefined,))
    with pytest.raises(NotFoundError, match="OutboxThings are not known to this cluster; install the Custom"):
        await WatchCheck(cluster, store, [namespace]).wait_until_synced()
