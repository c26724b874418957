"""Where the operator works, and with which rights: exactly those that are granted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.leadership import Leadership
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS, Right
from tests.operator import neighbours
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.identity import identity
from tests.operator.pods import Pods
from tests.operator.site import Site

Use = tuple[str, str, str]
"""An API group, a resource with its subresource, and a verb."""


async def test_the_namespaces_of_a_list_are_served_and_no_others(
    api: Api, site: Site, tmp_path: Path
) -> None:
    names = [site.namespace, f"{site.namespace}-b", f"{site.namespace}-c"]
    for name in names[1:]:
        api.make_namespace(name)
    rights = [right.manifest() for right in RESOURCE_RIGHTS]
    who = identity(api, site.namespace, tmp_path, dict.fromkeys(names[:2], rights))
    first, second, unwatched = (
        Site(api, name, who, site.services, site.rabbitmq_url, site.postgres_url) for name in names
    )
    for shop in (first, second, unwatched):
        shop.make_secrets()
        api.create(shop.relay(exchange=shop.namespace))
        api.create(shop.listener(deletionPolicy="Delete"))
    async with first.operating(namespaces=tuple(names[:2])) as operator:
        for shop in (first, second):
            await shop.until_condition(shop.listener())
        await first.until(lambda: operator.world.queue.is_idle, "an operator with nothing to do")
    left = unwatched.get(unwatched.listener())
    assert "status" not in left
    assert "finalizers" not in left["metadata"]
    assert first.exchanges() >= {first.namespace, second.namespace}
    assert unwatched.namespace not in first.exchanges()
    assert not [name for name in first.queues() if name.startswith(f"{unwatched.namespace}.")]


async def test_every_right_is_used_and_no_other_is_needed(site: Site, uses: set[Use]) -> None:
    """A whole life under these rights; what is refused would be in no condition that is awaited here."""
    neighbours.install(site.api)
    relay = site.relay(replicas=2, deletionPolicy="Delete")
    scaling = {"min": 1, "max": 3}
    listener = site.listener(deletionPolicy="Delete", worker={"image": "shop:1", "autoscaling": scaling})
    taken = site.listener("taken", worker={"image": "shop:1"})
    site.make_secrets()
    _make_deployment(site, "taken-worker")
    for each in (relay, listener, taken):
        site.api.create(each)
    async with site.operating(has_neighbours=True, network_policies=True):
        for each in (relay, listener):
            await Pods(site, each).until_made()
        await site.until_condition(taken, "WorkloadAvailable", "False")
        failed = {"terminated": {"exitCode": 1, "startedAt": None, "finishedAt": None}}
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        Pods(site, relay).make_pod("crashing", waiting, restartCount=3, lastState=failed)
        Pods(site, relay).report(replicas=2)
        await site.until_condition(relay, "WorkloadAvailable", "False", "CrashLoop")
        Pods(site, relay).end_pod("crashing")
        for each in (relay, listener):
            await _rotate(site, Pods(site, each))
        await site.until_condition(relay)
    async with site.operating(has_neighbours=True):
        site.edit(relay, replicas=1)
        site.edit(listener, worker=None)
        await site.until(lambda: site.find("Deployment", "mail-worker") is None, "no workers")
        for each in (listener, relay):
            site.delete(each)
        await site.until(lambda: site.is_gone(relay), "the end of all")
    await _lead_once(site)
    assert uses == set(_granted(*RESOURCE_RIGHTS, *LEASE_RIGHTS))


async def _rotate(site: Site, pods: Pods) -> None:
    before = pods.secret_name
    site.annotate(pods.owner, rotate="1")
    await pods.until_another_secret(before)
    pods.roll_out()
    await site.until(lambda: len(pods.secrets()) == 1, "an end of the Secret of before")


async def _lead_once(site: Site) -> None:
    connection = await Connection.open({"KUBECONFIG": str(site.identity.kubeconfig)})
    leading = Leadership(Cluster(connection), site.namespace, "operator", "only")
    await leading.lead(lambda: asyncio.sleep(0))
    await connection.close()


def _make_deployment(site: Site, name: str) -> None:
    """Somebody's own."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "worker", "image": "theirs"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    path = f"/apis/apps/v1/namespaces/{site.namespace}/deployments"
    site.api.request("POST", path, {"metadata": {"name": name}, "spec": spec})


@pytest.fixture
def uses(site: Site, monkeypatch: pytest.MonkeyPatch) -> set[Use]:
    """What the API server is asked for from now on, as its authoriser sees it; by kopf too."""
    found: set[Use] = set()
    server = urlsplit(site.api.control_plane.url)
    request = aiohttp.ClientSession._request

    async def noting(
        session: aiohttp.ClientSession, method: str, url: Any, **rest: Any
    ) -> aiohttp.ClientResponse:
        response = await request(session, method, url, **rest)
        asked = urlsplit(str(url))
        if asked.netloc == server.netloc:
            found.update(_uses(method.upper(), asked.path, asked.query, is_new=response.status == 201))
        return response

    monkeypatch.setattr(aiohttp.ClientSession, "_request", noting)
    return found


def _uses(method: str, path: str, query: str, *, is_new: bool) -> Iterator[Use]:
    """What a call takes; nothing where it is about no object, such as the list of API groups."""
    root, *parts = path.strip("/").split("/")
    group = "" if root == "api" else parts.pop(0) if parts else ""
    parts = parts[1:]
    if parts[:1] == ["namespaces"]:
        parts = parts[2:]
    if not parts:
        return
    plural, name, subresource = (*parts, "", "")[:3]
    resource = f"{plural}/{subresource}" if subresource else plural
    if method == "GET":
        is_watch = parse_qs(query).get("watch") == ["true"]
        yield group, resource, "watch" if is_watch else "get" if name else "list"
        return
    yield group, resource, {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    if method == "PATCH" and is_new:
        # Server-side apply of what is not there is authorised as both.
        yield group, resource, "create"


def _granted(*rights: Right) -> Iterator[Use]:
    for right in rights:
        rule = right.manifest()
        for verb in right.verbs:
            yield rule["apiGroups"][0], rule["resources"][0], verb
