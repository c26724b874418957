"""An API server that refuses calls for a while, with the statuses that it has for being busy or forgetful."""

import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from tests.operator.control_plane.faults import FaultyProxy, Verdict, faulty_proxy
from tests.operator.pods import Pods
from tests.operator.site import Site

TOO_MANY = 429
GONE = 410
_WRITES = {"POST", "PUT", "PATCH", "DELETE"}


@asynccontextmanager
async def far(site: Site) -> AsyncIterator[tuple[FaultyProxy, Site]]:
    """The site as an operator sees it that reaches the API server through a proxy."""
    async with faulty_proxy(site.identity.kubeconfig) as (proxy, kubeconfig):
        yield proxy, replace(site, identity=replace(site.identity, kubeconfig=kubeconfig))


def is_write(request: web.Request) -> bool:
    return request.method in _WRITES


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") == "true"


def first_of_each(status: int, times: int, concerns: Callable[[web.Request], bool]) -> Callable[..., Verdict]:
    """Answers the first calls of each method and path with a status."""
    seen: Counter[tuple[str, str]] = Counter()

    def judge(request: web.Request) -> Verdict:
        if not concerns(request):
            return None
        seen[request.method, request.path] += 1
        return status if seen[request.method, request.path] <= times else None

    return judge


@pytest.mark.parametrize("status", [TOO_MANY, 500, 503])
async def test_writes_that_are_refused_for_a_while_are_done_in_the_end(site: Site, status: int) -> None:
    relay, listener = site.relay(replicas=1), site.listener(worker={"image": "shop:1"})
    site.make_secrets()
    async with far(site) as (proxy, there):
        proxy.judge = first_of_each(status, 2, is_write)
        async with there.operating():
            for each in (relay, listener):
                site.api.create(each)
            for each in (relay, listener):
                await site.until_condition(each, "TopologyReady")
                pods = Pods(site, each)
                await pods.until_made()
                pods.roll_out()
            for each in (relay, listener):
                await site.until_condition(each)
    refused = {(method, path.rpartition("/")[2]) for _, method, path in proxy.answered}
    assert {("PATCH", "status"), ("PATCH", "shop-relay"), ("PATCH", "mail-worker")} <= refused
    # No second Secret or user is left of the attempts that failed.
    for each in (relay, listener):
        assert len(Pods(site, each).secrets()) == 1
    assert len(site.broker_users()) == 2


# kopf leaves the tasks and sockets of watches that fail to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("status", [GONE, TOO_MANY])
async def test_watches_that_are_refused_for_a_while_miss_nothing(site: Site, status: int) -> None:
    relay, listener, late = site.relay(), site.listener(), site.listener("late")
    async with far(site) as (proxy, there):
        proxy.judge = first_of_each(status, 2, is_watch)
        async with there.operating():
            for each in (relay, listener):
                site.api.create(each)
            # The Secrets come after the first watches of them were refused.
            await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
            site.make_secrets()
            for each in (relay, listener):
                await site.until_condition(each)
            site.api.create(late)
            await site.until_condition(late)
    # Here, where such warnings are expected.
    gc.collect()
    watched = {path.rpartition("/")[2] for _, _, path in proxy.answered}
    assert "secrets" in watched
    # The first of them to be refused ends the other too.
    assert watched & {"outboxrelays", "outboxlisteners"}


async def test_a_deletion_goes_on_while_the_finalizer_cannot_be_removed(site: Site) -> None:
    listener = site.listener(deletionPolicy="Delete", retryDelays=[])
    site.make_secrets()
    async with far(site) as (proxy, there), there.operating():
        for each in (site.relay(), listener):
            site.api.create(each)
        await site.until_condition(listener)
        proxy.judge = first_of_each(
            TOO_MANY, 3, lambda request: is_write(request) and request.path.endswith("/outboxlisteners/mail")
        )
        site.delete(listener)
        await site.until(lambda: site.is_gone(listener), "the end of the listener")
        assert len(proxy.answered) == 3
    assert f"{site.namespace}.mail" not in site.queues()
