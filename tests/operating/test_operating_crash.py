"""An operator that is killed after any of its writes, and another one that comes after it.

Whatever was written until then, in the end all is as if nothing had happened.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from outbox_cli.local import Services
from outbox_operator.broker.actions import Action, RemoveBinding
from outbox_operator.broker.management import Management
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import NotLeaderError
from outbox_operator.cluster.fence import Fence, uptime
from outbox_operator.metrics import Metrics
from outbox_operator.operator import Operator
from outbox_operator.planning.pod_credentials import ROTATE
from outbox_operator.settings import Settings
from tests.integration.administrator import management
from tests.operator.control_plane.api import Api, Manifest, RefusedError
from tests.operator.control_plane.identity import Identity
from tests.operator.site import DEADLINE_SECONDS, Site

T = TypeVar("T")

_GROUPS = {
    "outboxrelays": "/apis/outbox.dev/v1alpha1",
    "outboxlisteners": "/apis/outbox.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "secrets": "/api/v1",
}
_MANAGED = "?labelSelector=app.kubernetes.io/managed-by%3Doutbox-operator"
_WRITES = {"create", "update", "apply", "patch", "delete"}
_LIVES_AT_ONCE = 4
_DEADLINE_SECONDS = 120
_POLL_SECONDS = 0.2
_RARELY = 3600.0
_NOW_AND_THEN = 5.0
_UNLIMITED = 10_000


@dataclass
class Life:
    """An operator's, which ends with so many writes."""

    writes_left: int
    written: list[str] = field(default_factory=list)
    """What was written, in order."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, what: str, do: Callable[[], Awaitable[T]]) -> T:
        if self.writes_left <= 0:
            # A dead process does nothing more, and the answers to what it has sent reach nobody.
            self.ended.set()
            await asyncio.Event().wait()
        self.writes_left -= 1
        self.written.append(what)
        return await do()


_LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


@pytest.fixture(autouse=True)
def _mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each write counted by the life of the operator whose task it is."""
    send, perform = Cluster._send, Management.perform

    async def mortal_send(self: Cluster, verb: str, target: Any, *rest: Any) -> Manifest:
        life = _LIFE.get()
        if life is None or verb not in _WRITES:
            return await send(self, verb, target, *rest)
        return await life.write(f"{verb} {target.kind}", lambda: send(self, verb, target, *rest))

    async def mortal_perform(self: Management, action: Action) -> str | None:
        life = _LIFE.get()
        if life is None:
            return await perform(self, action)
        return await life.write(type(action).__name__, lambda: perform(self, action))

    monkeypatch.setattr(Cluster, "_send", mortal_send)
    monkeypatch.setattr(Management, "perform", mortal_perform)


@dataclass(frozen=True)
class Story:
    """Something that users do, and what they see when it is done."""

    act: Callable[[Site], None]
    begins_with_all: bool = True
    """Whether there is everything already."""
    ends_with_nothing: bool = False
    """Whether there is nothing in the end."""


def _relay(site: Site) -> Manifest:
    return site.relay(replicas=1, deletionPolicy="Delete")


def _listener(site: Site) -> Manifest:
    worker = {"image": "shop:1", "replicas": 2}
    return site.listener(retryDelays=["1s"], deletionPolicy="Delete", worker=worker)


def _create(site: Site) -> None:
    site.api.create(_relay(site))
    site.api.create(_listener(site))


def _change(site: Site) -> None:
    """Edit a listener, and have its pods get another broker user."""
    worker = {"image": "shop:2", "replicas": 1}
    spec = {"bindingKeys": ["user.changed", "user.#"], "retryDelays": ["2s"], "worker": worker}
    site.patch(_listener(site), {"metadata": {"annotations": {ROTATE: "now"}}, "spec": spec})


def _delete(site: Site) -> None:
    body: Any = {
        "properties": {},
        "routing_key": "user.created",
        "payload": "{}",
        "payload_encoding": "string",
    }
    assert site.broker("POST", "exchanges/{vhost}/outbox/publish", body)["routed"]
    for each in (_relay(site), _listener(site)):
        site.delete(each)


STORIES = {
    "create": Story(_create, begins_with_all=False),
    "edit and rotation": Story(_change),
    "deletion": Story(_delete, ends_with_nothing=True),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_an_operator_killed_after_any_write_leaves_no_trace(story: Story, world: "World") -> None:
    async with world.controllers():
        [undisturbed] = world.sites(1)
        await world.prepare(story, undisturbed)
        whole = Life(_UNLIMITED)
        async with world.living(whole, story, undisturbed):
            pass
        # Also one without a single write.
        lives = [Life(writes) for writes in range(len(whole.written))]
        sites = world.sites(len(lives))
        await world.prepare(story, *sites)
        async with AsyncExitStack() as dead:
            turns = asyncio.Semaphore(_LIVES_AT_ONCE)

            async def live(life: Life, site: Site) -> None:
                async with turns:
                    await dead.enter_async_context(world.living(life, story, site))

            async with asyncio.TaskGroup() as group:
                for life, site in zip(lives, sites, strict=True):
                    group.create_task(live(life, site))
            await world.settle(story, undisturbed, *sites)
    wanted = world.state(undisturbed)
    for life, site in zip(lives, sites, strict=True):
        assert world.state(site) == wanted, f"after a life with {len(life.written)} writes: {life.written}"


async def test_a_leader_that_lost_its_lease_leaves_a_plan_half_done(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.make_secrets()
    site.api.create(site.relay())
    site.api.create(site.listener())
    perform, fence = Management.perform, Fence(3600)
    fence.open(uptime())

    async def last(self: Management, action: Action) -> str | None:
        told = await perform(self, action)
        fence.close()
        return told

    monkeypatch.setattr(Management, "perform", last)
    connection = await Connection.open({"KUBECONFIG": str(site.identity.kubeconfig)})
    settings = Settings(namespaces=(site.namespace,))
    operator = Operator(settings, connection, fence, Metrics(CollectorRegistry()))
    async with asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(ExceptionGroup) as ended:
            await operator.run()
    await connection.close()
    assert ended.group_contains(NotLeaderError)
    assert site.exchanges()
    assert site.queues() == {}
    assert site.status(site.relay()) == site.status(site.listener()) == {}


async def test_the_next_leader_finishes_a_deletion_that_was_half_done(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, queue = site.listener(deletionPolicy="Delete", retryDelays=[]), f"{site.namespace}.mail"
    site.make_secrets()
    site.api.create(site.relay())
    site.api.create(listener)
    async with site.operating():
        await site.until_condition(listener)
    perform, fence = Management.perform, Fence(3600)
    fence.open(uptime())
    done: list[str] = []

    async def last(self: Management, action: Action) -> str | None:
        told = await perform(self, action)
        done.append(type(action).__name__)
        if isinstance(action, RemoveBinding):
            fence.close()
        return told

    site.delete(listener)
    connection = await Connection.open({"KUBECONFIG": str(site.identity.kubeconfig)})
    settings = Settings(namespaces=(site.namespace,), count_seconds=0.2, installation="tests")
    operator = Operator(settings, connection, fence, Metrics(CollectorRegistry()))
    with monkeypatch.context() as changed:
        changed.setattr(Management, "perform", last)
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(ExceptionGroup) as ended:
                await operator.run()
    await connection.close()
    assert ended.group_contains(NotLeaderError)
    assert done == ["RemoveBinding"]
    assert queue in site.queues()
    assert not site.is_gone(listener)
    async with site.operating():
        await site.until(lambda: site.is_gone(listener), "the end of the listener")
    assert site.queues() == {}


@dataclass(frozen=True)
class World:
    """Places where operators live."""

    api: Api
    services: Services
    postgres_url: str
    rabbitmq_url: str
    made: list[Site] = field(default_factory=list)

    def sites(self, count: int) -> list[Site]:
        """Namespaces with Secrets, each with a virtual host."""
        new = [self._site() for _ in range(count)]
        self.made.extend(new)
        return new

    def _site(self) -> Site:
        namespace, vhost = f"test-{uuid4().hex[:12]}", f"test_{uuid4().hex}"
        self.api.make_namespace(namespace)
        url = urlunsplit(urlsplit(self.rabbitmq_url)._replace(path=f"/{vhost}"))
        administrator = Identity("administrator", "", self.api.control_plane.kubeconfig)
        site = Site(self.api, namespace, administrator, self.services, url, self.postgres_url)
        user = urlsplit(url).username
        site.broker("PUT", "vhosts/{vhost}")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        site.broker("PUT", f"permissions/{{vhost}}/{user}", everything)
        site.make_secrets()
        return site

    def close(self) -> None:
        for site in self.made:
            site.broker("DELETE", "vhosts/{vhost}")

    async def prepare(self, story: Story, *sites: Site) -> None:
        """Have all there that the story begins with."""
        if story.begins_with_all:
            for site in sites:
                _create(site)
            await self.settle(STORIES["create"], *sites)

    async def settle(self, story: Story, *sites: Site) -> None:
        """Have an operator do all that there is to do."""
        async with _operating(*sites, drift_seconds=_NOW_AND_THEN):
            await self._until_done(story, sites, asyncio.Event())

    @asynccontextmanager
    async def living(self, life: Life, story: Story, site: Site) -> AsyncIterator[None]:
        """The story with an operator that may die before its end; a dead one does not write any more."""
        story.act(site)
        _LIFE.set(life)
        async with _operating(site, drift_seconds=_RARELY):
            await self._until_done(story, [site], life.ended)
            yield

    async def _until_done(self, story: Story, sites: Sequence[Site], ended: asyncio.Event) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        # In a thread: the operators are on this loop.
        while not ended.is_set() and (left := await asyncio.to_thread(self._left, story, sites)):
            assert time.monotonic() < deadline, f"not done for {len(left)}: {left[:2]}"
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _POLL_SECONDS)

    def _left(self, story: Story, sites: Sequence[Site]) -> list[Manifest]:
        """The resources with which not all is done."""
        there = [*self._all("outboxrelays"), *self._all("outboxlisteners")]
        names = {site.namespace for site in sites}
        ours = [each for each in there if each["metadata"]["namespace"] in names]
        if story.ends_with_nothing:
            return ours
        secrets = self._all("secrets", _MANAGED)
        users = [user["name"] for user in management(self.services, "GET", "users")]
        return [each for each in ours if not _is_done(each, secrets, users)]

    def _all(self, plural: str, query: str = "") -> list[Manifest]:
        found: list[Manifest] = self.api.request("GET", f"{_GROUPS[plural]}/{plural}{query}")["items"]
        return found

    @asynccontextmanager
    async def controllers(self) -> AsyncIterator[None]:
        """Have each Deployment rolled out at once, as its controller would in the end."""
        working = asyncio.create_task(self._roll_out())
        try:
            yield
            assert not working.done(), working.exception()
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    async def _roll_out(self) -> None:
        while True:
            sites = {site.namespace: site for site in self.made}
            for live in await asyncio.to_thread(self._all, "deployments", _MANAGED):
                metadata = live["metadata"]
                is_new = live.get("status", {}).get("observedGeneration") != metadata["generation"]
                if is_new and (site := sites.get(metadata["namespace"])):
                    await asyncio.to_thread(_roll_out, site, live)
            await asyncio.sleep(_POLL_SECONDS)

    def state(self, site: Site) -> dict[str, Any]:
        """All that there is in a place, but for what chance and time have given it."""
        found: dict[str, Any] = {
            plural: sorted(map(_gist, self._mine(site, plural)), key=lambda gist: str(gist["name"]))
            for plural in _GROUPS
        }
        found["queues"] = {name: queue["arguments"] for name, queue in site.queues().items()}
        found["bindings"] = {name: sorted(site.bindings(name)) for name in found["queues"]}
        found["exchanges"] = sorted(site.exchanges())
        found["users"] = sorted(site.broker_users())
        return dict(_anonymous(found, site, self._mine(site, "outboxrelays", "outboxlisteners")))

    def _mine(self, site: Site, *plurals: str) -> list[Manifest]:
        return [
            each
            for plural in plurals
            for each in self._all(plural, _MANAGED if plural == "secrets" else "")
            if each["metadata"]["namespace"] == site.namespace
        ]


@pytest.fixture
def world(api: Api, services: Services, postgres_url: str, rabbitmq_url: str) -> Iterator[World]:
    made = World(api, services, postgres_url, rabbitmq_url)
    yield made
    made.close()


@asynccontextmanager
async def _operating(*sites: Site, **settings: Any) -> AsyncIterator[Operator]:
    namespaces = tuple(site.namespace for site in sites)
    async with sites[0].operating(namespaces=namespaces, **settings) as operator:
        yield operator


def _roll_out(site: Site, live: Manifest) -> None:
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = {
        **dict.fromkeys(counts, live["spec"]["replicas"]),
        "observedGeneration": live["metadata"]["generation"],
    }
    path = f"{site.path_of({**live, 'kind': 'Deployment'})}/status"
    with suppress(RefusedError):
        # It may have gone meanwhile.
        site.api.request("PATCH", path, {"status": status}, "application/merge-patch+json")


def _is_done(owner: Manifest, secrets: Sequence[Manifest], users: Sequence[str]) -> bool:
    """Whether it is ready, with the one Secret and user that it should have, and nothing of before."""
    metadata, conditions = owner["metadata"], owner.get("status", {}).get("conditions", ())
    ready = ("Ready", "True", metadata["generation"])
    wanted = metadata.get("annotations", {}).get(ROTATE, "")
    return (
        any((each["type"], each["status"], each["observedGeneration"]) == ready for each in conditions)
        and all(each["reason"] != "Progressing" for each in conditions)
        and _rotations(owner, secrets) == [wanted]
        and sum(user.startswith(_user_prefix(owner)) for user in users) == 1
    )


def _rotations(owner: Manifest, secrets: Sequence[Manifest]) -> list[str]:
    """For which rotation each of its Secrets was made."""
    return [
        secret["metadata"]["annotations"].get("outbox.dev/rotation", "")
        for secret in secrets
        if secret["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    ]


def _user_prefix(owner: Manifest) -> str:
    kind = "relay" if owner["kind"] == "OutboxRelay" else "listener"
    return f"outbox.{kind}.{owner['metadata']['namespace']}.{owner['metadata']['name']}."


def _gist(manifest: Manifest) -> dict[str, Any]:
    """What an object is, without when and how often it was written."""
    metadata, status = manifest["metadata"], manifest.get("status", {})
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())]
    numbers = {"observedGeneration", "collisionCount", "conditions", "terminatingReplicas"}
    return {
        "name": metadata["name"],
        "labels": metadata.get("labels"),
        "annotations": {
            name: value
            for name, value in metadata.get("annotations", {}).items()
            if name not in ("outbox.dev/broker-user", "outbox.dev/inputs")
        },
        "finalizers": metadata.get("finalizers"),
        "spec": manifest.get("spec"),
        "keys": sorted(manifest.get("data", ())),
        "conditions": conditions,
        "status": {name: value for name, value in status.items() if name not in numbers},
    }


def _anonymous(found: Any, site: Site, owners: Sequence[Manifest]) -> Any:
    """The same with other names for the place, for each uid and for what was drawn by lot."""
    text = json.dumps(found, sort_keys=True)
    text = text.replace(site.namespace, "NAMESPACE").replace(site.vhost, "VHOST")
    for owner in owners:
        text = text.replace(owner["metadata"]["uid"][:8], f"UID-{owner['kind']}")
    text = re.sub(r"(outbox\.(?:relay|listener)\.NAMESPACE\.\w+\.[\w-]+)-[0-9a-f]{8}\b", r"\1-CHANCE", text)
    return json.loads(text)
