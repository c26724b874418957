"""The watches on a real API server, by somebody who may list and watch and nothing else."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf
import pytest

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ForbiddenError
from outbox_operator.cluster.kinds import DEPLOYMENT, RELAY, Kind, Manifest, path
from outbox_operator.cluster.store import MANAGED, Store
from outbox_operator.cluster.watch_check import WatchCheck
from outbox_operator.cluster.watching import run_watches
from tests.operator import manifests
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.bridge import bridge
from tests.operator.control_plane.identity import Identity, identity, rule
from tests.operator.control_plane.waiting import DEADLINE_SECONDS, until

_RIGHTS = (
    rule("outbox.dev", "outboxrelays outboxlisteners", "list watch"),
    rule("apps", "deployments", "list watch"),
)


@dataclass(frozen=True)
class _Watch:
    """A store that watches feed, and what it told."""

    store: Store
    check: WatchCheck
    events: list[tuple[Kind, str, str]]
    running: asyncio.Task[None]


@pytest.fixture
def watcher(api: Api, namespace: str, tmp_path: Path) -> Identity:
    return identity(api, namespace, tmp_path, {namespace: _RIGHTS})


@asynccontextmanager
async def _watching(kubeconfig: Path, namespaces: Sequence[str]) -> AsyncIterator[_Watch]:
    connection = await Connection.open({"KUBECONFIG": str(kubeconfig)})
    store = Store()
    check = WatchCheck(Cluster(connection), store, namespaces, patience_seconds=0)
    events: list[tuple[Kind, str, str]] = []
    store.subscribe(lambda kind, namespace, name: events.append((kind, namespace, name)))
    running = asyncio.create_task(run_watches(store, connection, namespaces))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await check.wait_until_synced()
        yield _Watch(store, check, events, running)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await connection.close()


def _make(api: Api, namespace: str, manifest: Manifest, name: str = "shop") -> Manifest:
    made = deepcopy(manifest)
    made["metadata"] = {"namespace": namespace, "name": name}
    return api.create(made)


def _deployment(name: str, labels: dict[str, str]) -> Manifest:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "shop:1"}]},
    }
    selector = {"matchLabels": {"app": name}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": selector, "template": template},
    }


def _patch(api: Api, kind: Kind, namespace: str, name: str, patch: dict[str, Any]) -> None:
    api.request("PATCH", path(kind, namespace, name), patch, "application/merge-patch+json")


async def test_a_resource_is_known_from_its_creation_to_its_end(
    api: Api, watcher: Identity, namespace: str
) -> None:
    async with _watching(watcher.kubeconfig, [namespace]) as watch:
        made = await asyncio.to_thread(_make, api, namespace, manifests.RELAY)
        await until("its creation is told", lambda: (namespace, "shop") in watch.store.relays)
        made["spec"]["replicas"] = 3
        await asyncio.to_thread(api.replace, made)
        await until("its edit is told", lambda: watch.store.relays[namespace, "shop"].spec.replicas == 3)
        assert watch.store.relays[namespace, "shop"].metadata.generation == 2
        await asyncio.to_thread(api.request, "DELETE", path(RELAY, namespace, "shop"))
        await until("its end is told", lambda: not watch.store.relays)
        assert watch.events == [(RELAY, namespace, "shop")] * 3


async def test_what_is_there_at_the_start_is_known_when_the_store_is_synced(
    api: Api, watcher: Identity, namespace: str
) -> None:
    for number in range(20):
        _make(api, namespace, manifests.LISTENER, f"listener-{number}")
    _make(api, namespace, manifests.RELAY)
    async with _watching(watcher.kubeconfig, [namespace]) as watch:
        assert watch.store.synced.is_set()
        assert len(watch.store.listeners) == len(watch.store.listeners_of(namespace, "shop")) == 20
        assert (namespace, "shop") in watch.store.relays


async def test_roles_in_some_namespaces_are_enough_and_others_are_not_seen(
    api: Api, namespace: str, tmp_path: Path
) -> None:
    second, foreign = f"{namespace}-b", f"{namespace}-c"
    for name in (second, foreign):
        api.make_namespace(name)
    watcher = identity(api, namespace, tmp_path, {namespace: _RIGHTS, second: _RIGHTS})
    async with _watching(watcher.kubeconfig, [namespace, second]) as watch:
        for name in (foreign, namespace, second):
            await asyncio.to_thread(_make, api, name, manifests.RELAY)
        await until("both are told", lambda: len(watch.store.relays) == 2)
        assert set(watch.store.relays) == {(namespace, "shop"), (second, "shop")}


async def test_a_cluster_role_sees_every_namespace(api: Api, namespace: str, tmp_path: Path) -> None:
    watcher = identity(api, namespace, tmp_path, {}, cluster_role=_RIGHTS)
    another = f"{namespace}-b"
    api.make_namespace(another)
    async with _watching(watcher.kubeconfig, ()) as watch:
        for name in (namespace, another):
            await asyncio.to_thread(_make, api, name, manifests.RELAY)
        await until(
            "both are told", lambda: {(namespace, "shop"), (another, "shop")} <= set(watch.store.relays)
        )


async def test_of_deployments_only_the_operators_own_are_seen(
    api: Api, watcher: Identity, namespace: str
) -> None:
    managed = dict([MANAGED.split("=")])
    collection = path(DEPLOYMENT, namespace)
    async with _watching(watcher.kubeconfig, [namespace]) as watch:
        for name, labels in (("foreign", {"a": "b"}), ("ours", managed)):
            await asyncio.to_thread(api.request, "POST", collection, _deployment(name, labels))
        await until("ours is told", lambda: watch.store.deployments)
        assert set(watch.store.deployments) == {(namespace, "ours")}
        label = MANAGED.split("=")[0]
        for value, is_seen in ((None, False), ("outbox-operator", True)):
            patch = {"metadata": {"labels": {label: value}}}
            await asyncio.to_thread(_patch, api, DEPLOYMENT, namespace, "ours", patch)
            await until(
                f"it is seen: {is_seen}",
                lambda wanted=is_seen: ((namespace, "ours") in watch.store.deployments) is wanted,  # type: ignore[misc]
            )


async def test_watching_leaves_no_trace_on_a_resource(api: Api, watcher: Identity, namespace: str) -> None:
    made = _make(api, namespace, manifests.RELAY)
    async with _watching(watcher.kubeconfig, [namespace]) as watch:
        _patch(api, RELAY, namespace, "shop", {"spec": {"replicas": 2}})
        await until("the edit is told", lambda: watch.store.relays[namespace, "shop"].spec.replicas == 2)
    found = api.get(made)
    assert "annotations" not in found["metadata"]
    assert "finalizers" not in found["metadata"]
    assert "kopf" not in str(found["metadata"]["managedFields"])


async def test_the_signals_stay_the_process_own(watcher: Identity, namespace: str) -> None:
    received = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, received.set)
    try:
        async with _watching(watcher.kubeconfig, [namespace]):
            signal.raise_signal(signal.SIGTERM)
            await until("the signal arrives", received.is_set)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_the_end_of_the_watches_ends_nothing_else(watcher: Identity, namespace: str) -> None:
    async with _watching(watcher.kubeconfig, [namespace]) as watch:
        bystander = asyncio.create_task(asyncio.Event().wait())
        watch.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watch.running
        assert not bystander.done()
        bystander.cancel()


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 10, 30])
async def test_watches_end_when_asked_to_also_while_they_begin(
    watcher: Identity, namespace: str, steps: int
) -> None:
    connection = await Connection.open({"KUBECONFIG": str(watcher.kubeconfig)})
    cluster = Cluster(connection)
    running = asyncio.create_task(run_watches(Store(), connection, [namespace]))
    for _ in range(steps):
        await cluster.list(RELAY, namespace)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=DEADLINE_SECONDS)
    assert done, "the watches were to end"
    assert running.cancelled()
    await connection.close()


async def test_tasks_are_ended_and_not_collected_if_the_watches_are_cancelled_as_they_begin(
    watcher: Identity, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spawn_tasks, spawned = kopf.spawn_tasks, threading.Event()

    async def cancelled_after_spawning(**options: Any) -> None:
        await spawn_tasks(**options)
        gc.collect()
        spawned.set()
        raise asyncio.CancelledError

    monkeypatch.setattr(kopf, "spawn_tasks", cancelled_after_spawning)
    connection = await Connection.open({"KUBECONFIG": str(watcher.kubeconfig)})
    running = asyncio.create_task(run_watches(Store(), connection, [namespace]))
    await until("kopf has spawned its tasks", spawned.is_set)
    running.cancel()
    await asyncio.wait([running], timeout=DEADLINE_SECONDS)
    await connection.close()
    assert "Task was destroyed" not in caplog.text


async def test_what_happened_while_the_server_was_away_is_known_afterwards(
    api: Api, watcher: Identity, namespace: str
) -> None:
    gone = _make(api, namespace, manifests.RELAY, "gone")
    _make(api, namespace, manifests.RELAY, "edited")
    async with (
        bridge(watcher.kubeconfig) as (way, kubeconfig),
        _watching(kubeconfig, [namespace]) as watch,
    ):
        await way.cut()
        api.request("DELETE", path(RELAY, namespace, gone["metadata"]["name"]))
        _patch(api, RELAY, namespace, "edited", {"spec": {"replicas": 7}})
        _make(api, namespace, manifests.LISTENER, "made")
        await way.open()
        await until("what was made is told", lambda: (namespace, "made") in watch.store.listeners)
        await until("the edit is told", lambda: watch.store.relays[namespace, "edited"].spec.replicas == 7)
        # kopf may have had to list anew, which says nothing of what went: the check finds it.
        for _ in range(2):
            await watch.check.look()
        await until("what went is gone", lambda: (namespace, "gone") not in watch.store.relays)
        assert watch.check.problem() is None


async def test_watches_begin_anew_after_kopf_gave_up(api: Api, namespace: str, tmp_path: Path) -> None:
    nobody = identity(api, namespace, tmp_path, {})
    connection = await Connection.open({"KUBECONFIG": str(nobody.kubeconfig)})
    store = Store()
    check = WatchCheck(Cluster(connection), store, [namespace])
    running = asyncio.create_task(run_watches(store, connection, [namespace]))
    with pytest.raises(ForbiddenError, match=r"may not list outboxrelays\.outbox\.dev in namespace"):
        await check.wait_until_synced()
    _make(api, namespace, manifests.RELAY)
    name = nobody.user.rpartition(":")[2]
    role = {"metadata": {"name": name}, "rules": list(_RIGHTS)}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api.request("POST", f"{roles}/roles", role)
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    api.request("POST", f"{roles}/rolebindings", binding)
    await until("the relay is told", lambda: (namespace, "shop") in store.relays)
    running.cancel()
    await asyncio.wait([running])
    await connection.close()
