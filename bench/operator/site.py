"""A namespace and a virtual host of one measurement, with what is applied there, and the operator for it."""

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import aiohttp

from bench.operator.process import OperatorProcess
from bench.operator.watch import Watch
from outbox_cli.local import Services
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS
from outbox_operator.resources import API_GROUP, API_VERSION
from tests.integration.administrator import management
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.identity import identity

Manifest = dict[str, Any]

RELAY = "shop"
DELAYS = ("1s", "10s", "1m", "5m")
MERGE = "application/merge-patch+json"

_APPLY_SECONDS = 300.0
_CUSTOM = f"/apis/{API_GROUP}/{API_VERSION}"


@dataclass(frozen=True)
class Ground:
    """What all sites are on."""

    api: Api
    """The API server, for its administrator."""
    services: Services
    """Postgres and RabbitMQ."""

    @asynccontextmanager
    async def site(self) -> AsyncIterator["Site"]:
        """A site with its Secrets, and with nothing applied yet."""
        name = f"bench-{uuid4().hex[:8]}"
        user = urlsplit(self.services.rabbitmq.url).username
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await asyncio.to_thread(management, self.services, "PUT", f"vhosts/{name}")
        await asyncio.to_thread(management, self.services, "PUT", f"permissions/{name}/{user}", everything)
        await asyncio.to_thread(self.api.make_namespace, name)
        server = self.api.control_plane
        connector = aiohttp.TCPConnector(ssl=server.context)
        try:
            async with aiohttp.ClientSession(server.url, connector=connector) as session:
                site = Site(self, name, session)
                await site.make_secrets()
                yield site
                await site.clear()
        finally:
            # Idle quorum queues have a price too, which the next measurement must not pay.
            await asyncio.to_thread(management, self.services, "DELETE", f"vhosts/{name}")


@dataclass(frozen=True)
class Site:
    """A namespace and a virtual host of the same name."""

    ground: Ground
    """What it is on."""
    name: str
    """Its name."""
    session: aiohttp.ClientSession
    """The way to the API server."""

    # What is applied.

    async def make_secrets(self) -> None:
        services = self.ground.services
        urls = {
            f"{RELAY}-db": services.postgres.url,
            f"{RELAY}-rabbitmq": urlunsplit(urlsplit(services.rabbitmq.url)._replace(path=f"/{self.name}")),
        }
        for name, url in urls.items():
            secret = {"metadata": {"name": name}, "stringData": {"uri": url}}
            await self.request("POST", f"/api/v1/namespaces/{self.name}/secrets", secret)

    def relay(self) -> Manifest:
        """A relay without pods: there is no node that they could run on."""
        parts = urlsplit(self.ground.services.rabbitmq.management_url)
        address = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        spec = {
            "database": {"secretRef": {"name": f"{RELAY}-db"}, "table": self.name.replace("-", "_")},
            "broker": {"secretRef": {"name": f"{RELAY}-rabbitmq"}, "managementUrl": address},
            "replicas": 0,
        }
        return self._manifest("OutboxRelay", RELAY, spec)

    def listener(self, name: str, **spec: Any) -> Manifest:
        """A listener without workers, unless `worker` says otherwise."""
        known = {"relayRef": {"name": RELAY}, "bindingKeys": [f"{name}.created"], "retryDelays": [*DELAYS]}
        return self._manifest("OutboxListener", name, {**known, **spec})

    def _manifest(self, kind: str, name: str, spec: Manifest) -> Manifest:
        metadata = {"name": name, "namespace": self.name}
        head = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": kind, "metadata": metadata}
        return {**head, "spec": spec}

    async def apply(self, manifests: Sequence[Manifest]) -> None:
        """One `kubectl apply`, as a person types it."""
        # JSON is YAML that kubectl reads faster than Python can write the other kind.
        text = "\n---\n".join(map(json.dumps, manifests))
        plane = self.ground.api.control_plane
        kubectl = await asyncio.create_subprocess_exec(
            *(plane.programs.kubectl, "apply", "--validate=false", "-f", "-"),
            env={"KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.folder)},
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
        )
        try:
            async with asyncio.timeout(_APPLY_SECONDS):
                _, said = await kubectl.communicate(text.encode())
        finally:
            if kubectl.returncode is None:
                kubectl.kill()
                await kubectl.wait()
        if kubectl.returncode:
            raise RuntimeError(f"kubectl apply failed: {said.decode(errors='replace').strip()[-500:]}")

    async def clear(self) -> None:
        """Delete the custom resources, which are all Retain or gone by now."""
        for plural in ("outboxlisteners", "outboxrelays"):
            await self.request("DELETE", self.path(plural))

    # How the API server is asked.

    def path(self, plural: str, name: str = "") -> str:
        """Where the custom resources of a kind are, or one of them."""
        return f"{_CUSTOM}/namespaces/{self.name}/{plural}{f'/{name}' if name else ''}"

    async def edit(self, listener: str, spec: Manifest) -> int:
        """Change a listener; its generation afterwards."""
        path = self.path("outboxlisteners", listener)
        return int((await self.request("PATCH", path, {"spec": spec}, MERGE))["metadata"]["generation"])

    async def count(self, collection: str, selector: str = "") -> int:
        """How many objects there are in `apis/…/PLURAL` of this namespace."""
        group, _, plural = collection.rpartition("/")
        path = f"/{group}/namespaces/{self.name}/{plural}?labelSelector={selector}"
        return len((await self.request("GET", path))["items"])

    async def request(
        self, method: str, path: str, body: Manifest | None = None, content_type: str = "application/json"
    ) -> Manifest:
        headers = {"Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers=headers) as response:
            answer: Manifest = await response.json()
            if not response.ok:
                raise RuntimeError(f"{method} {path}: {answer.get('message')}")
        return answer

    # Who looks.

    @asynccontextmanager
    async def watching(self, plural: str = "outboxlisteners") -> AsyncIterator[Watch]:
        """What becomes of all custom resources of a kind."""
        async with Watch.opened(self.session, self.path(plural)) as watch:
            yield watch

    @asynccontextmanager
    async def operating(self, *others: str) -> AsyncIterator[OperatorProcess]:
        """The operator, at work here and in these namespaces, under the rights that the chart gives it."""
        api, names = self.ground.api, (self.name, *others)
        rights = [right.manifest() for right in (*RESOURCE_RIGHTS, *LEASE_RIGHTS)]
        granted = dict.fromkeys(names, rights)
        who = await asyncio.to_thread(identity, api, self.name, api.control_plane.folder, granted)
        async with OperatorProcess.started(who.kubeconfig, names) as operator:
            await self._until_heard()
            yield operator

    async def _until_heard(self) -> None:
        """Until the operator has answered: its start is not what is measured."""
        async with self.watching() as watch:
            canary = self.listener("canary", paused=True)
            await self.request("POST", self.path("outboxlisteners"), canary)
            await watch.until("the operator answers", lambda: watch.sights["canary"].is_observed, {"canary"})
            await self.request("DELETE", self.path("outboxlisteners", "canary"))
            await watch.until_gone({"canary"})
