"""Answers that no API server gives: each is an error of the call, and of nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ClusterError, MalformedError
from outbox_operator.cluster.kinds import LEASE, RELAY, SECRET
from outbox_operator.cluster.leadership import Leadership, Timing
from outbox_operator.cluster.store import Store
from outbox_operator.cluster.watch_check import WatchCheck
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.faults import FaultyProxy, faulty_proxy
from tests.operator.control_plane.identity import identity, rule
from tests.operator.junk import BODIES, EVENTS
from tests.operator.manifests import RELAY as MANIFEST

_RIGHTS = (
    rule("outbox.dev", "outboxrelays outboxlisteners", "get list create update patch watch"),
    rule("apps", "deployments", "list"),
    rule("", "secrets", "get create watch delete"),
    rule("coordination.k8s.io", "leases", "get create update"),
)


@pytest.fixture
async def proxied(api: Api, namespace: str, tmp_path: Path) -> AsyncIterator[tuple[FaultyProxy, Cluster]]:
    kubeconfig = identity(api, namespace, tmp_path, {namespace: _RIGHTS}).kubeconfig
    async with faulty_proxy(kubeconfig) as (proxy, through):
        connection = await Connection.open({"KUBECONFIG": str(through)})
        yield proxy, Cluster(connection)
        await connection.close()


def calls_of(cluster: Cluster, namespace: str) -> list[Callable[[], Awaitable[object]]]:
    named = {**MANIFEST, "metadata": {"name": "shop", "namespace": namespace}}
    return [
        lambda: cluster.get(RELAY, namespace, "shop"),
        lambda: cluster.create({**named, "metadata": {"generateName": "a", "namespace": namespace}}),
        lambda: cluster.apply(named, force=True),
        lambda: cluster.patch(RELAY, namespace, "shop", {}),
        cluster.api_groups,
    ]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:20]))
async def test_an_answer_that_is_no_object_is_an_error_of_the_call(
    proxied: tuple[FaultyProxy, Cluster], namespace: str, body: bytes
) -> None:
    proxy, cluster = proxied
    await cluster.apply({**MANIFEST, "metadata": {"name": "shop", "namespace": namespace}}, force=True)
    proxy.instead = lambda _: body
    for call in calls_of(cluster, namespace):
        if call == cluster.api_groups and b'"groups": [' in body:
            assert await call() == frozenset()
            continue
        with pytest.raises(MalformedError, match="what the API server answers is no"):
            await call()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:20]))
async def test_of_a_list_what_is_no_object_is_passed_over(
    proxied: tuple[FaultyProxy, Cluster], namespace: str, body: bytes
) -> None:
    proxy, cluster = proxied
    proxy.instead = lambda _: body
    try:
        assert await cluster.list(RELAY, namespace) == []
    except MalformedError:
        assert b'"items": [' not in body


@pytest.mark.parametrize("line", EVENTS, ids=lambda line: repr(line[:40]))
async def test_a_line_that_is_no_event_ends_a_watch_with_an_error(
    proxied: tuple[FaultyProxy, Cluster], namespace: str, line: bytes
) -> None:
    proxy, cluster = proxied
    proxy.instead = lambda _: line + b"\n"
    with pytest.raises(ClusterError):
        async with cluster.watch(SECRET, namespace, "s") as events:
            async for type_, found in events:
                assert (type_, found) == ("BOOKMARK", {})


async def test_watch_check_and_leadership_live_on_through_junk(
    proxied: tuple[FaultyProxy, Cluster], namespace: str
) -> None:
    proxy, cluster = proxied
    check = WatchCheck(cluster, Store(), (namespace,))
    quick = Timing(lease_seconds=3, fence_seconds=2.5, renew_seconds=0.05, retry_seconds=0.01, call_seconds=1)
    leadership = Leadership(cluster, namespace, "lease", "me", quick)
    junk: bytes | None = None
    renewed = asyncio.Event()

    def instead(request: web.Request) -> bytes | None:
        if request.method == "PUT":
            renewed.set()
        return junk

    proxy.instead = instead

    async def work() -> None:
        nonlocal junk
        for body in BODIES:
            # A renewal that gets it, and one that gets through before the Lease is lost.
            for answer in (body, None):
                junk = answer
                renewed.clear()
                await renewed.wait()
                try:
                    await check.look()
                except MalformedError:
                    assert b'"items": [' not in body

    await leadership.lead(work)
    lease = await cluster.get(LEASE, namespace, "lease")
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""
