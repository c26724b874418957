"""A namespace with everything a relay needs, and an operator with exactly its own rights in it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from prometheus_client import CollectorRegistry

from outbox_cli.local import Services
from outbox_operator.children.family import Facilities
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.fence import Fence, uptime
from outbox_operator.metrics import Metrics
from outbox_operator.operator import Operator
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS
from outbox_operator.settings import Settings
from tests.integration.administrator import management
from tests.operator.control_plane.api import Api, Manifest, RefusedError
from tests.operator.control_plane.identity import Identity, identity
from tests.operator.manifests import LISTENER, RELAY

DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.02
_DAY_SECONDS = 86_400.0


class _Secluded(Operator):
    """Has no neighbours, whatever other tests have installed meanwhile."""

    async def _facilities(self) -> Facilities:
        seen = await super()._facilities()
        return replace(seen, keda=False, pod_monitors=False)


@dataclass
class Site:
    """A namespace, a database and a virtual host, as whoever uses them sees them."""

    api: Api
    namespace: str
    identity: Identity
    """Whom the operator is to the API server."""
    services: Services
    rabbitmq_url: str
    postgres_url: str

    @property
    def vhost(self) -> str:
        return urlsplit(self.rabbitmq_url).path.removeprefix("/")

    # What a user writes.

    def make_secret(self, name: str, **data: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        self.api.request("POST", path, {"metadata": {"name": name}, "stringData": data})

    def change_secret(self, name: str, **data: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
        self.api.request("PATCH", path, {"stringData": data}, "application/merge-patch+json")

    def make_secrets(self) -> None:
        """Those that the relay of these tests names."""
        self.make_secret("shop-db", uri=self.postgres_url)
        self.make_secret("shop-rabbitmq", uri=self.rabbitmq_url)

    def relay(self, name: str = "shop", **spec: Any) -> Manifest:
        """A relay without pods, unless `replicas` says otherwise."""
        manifest = deepcopy(RELAY)
        manifest["metadata"] = {"name": name, "namespace": self.namespace}
        broker = {**manifest["spec"]["broker"], "managementUrl": self.management_url}
        manifest["spec"] = {**manifest["spec"], "broker": broker, "replicas": 0, **spec}
        return manifest

    def listener(self, name: str = "mail", **spec: Any) -> Manifest:
        """A listener without workers, unless `worker` says otherwise."""
        manifest = deepcopy(LISTENER)
        manifest["metadata"] = {"name": name, "namespace": self.namespace}
        manifest["spec"] = {**manifest["spec"], **spec}
        return manifest

    def patch(self, manifest: Manifest, change: Manifest) -> Manifest:
        """Change an object by a merge patch."""
        path = self.path_of(manifest)
        return self.api.request("PATCH", path, change, "application/merge-patch+json")

    def edit(self, manifest: Manifest, **spec: Any) -> Manifest:
        return self.patch(manifest, {"spec": spec})

    def annotate(self, manifest: Manifest, **annotations: str | None) -> Manifest:
        """Set annotations of ours, without their prefix and with _ for -."""
        named = {f"outbox.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
        return self.patch(manifest, {"metadata": {"annotations": named}})

    def delete(self, manifest: Manifest) -> None:
        self.api.request("DELETE", self.path_of(manifest))

    def path_of(self, manifest: Manifest) -> str:
        plurals = {
            "OutboxRelay": "/apis/outbox.dev/v1alpha1/{}/outboxrelays",
            "OutboxListener": "/apis/outbox.dev/v1alpha1/{}/outboxlisteners",
            "Deployment": "/apis/apps/v1/{}/deployments",
            "Secret": "/api/v1/{}/secrets",
            "PodDisruptionBudget": "/apis/policy/v1/{}/poddisruptionbudgets",
        }
        collection = plurals[manifest["kind"]].format(f"namespaces/{self.namespace}")
        return f"{collection}/{manifest['metadata']['name']}"

    # What a user sees.

    def get(self, manifest: Manifest) -> Manifest:
        return self.api.request("GET", self.path_of(manifest))

    def find(self, kind: str, name: str) -> Manifest | None:
        """An object, or None where it is not there."""
        try:
            return self.get({"kind": kind, "metadata": {"name": name}})
        except RefusedError:
            return None

    def is_gone(self, manifest: Manifest) -> bool:
        return self.find(manifest["kind"], manifest["metadata"]["name"]) is None

    def status(self, manifest: Manifest) -> Manifest:
        status: Manifest = self.get(manifest).get("status", {})
        return status

    def condition(self, manifest: Manifest, kind: str = "Ready") -> Manifest:
        """One condition; empty where it is not said."""
        conditions: list[Manifest] = self.status(manifest).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def events(self, manifest: Manifest) -> list[Manifest]:
        """What was told about an object."""
        found = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [each for each in found if each["involvedObject"]["name"] == manifest["metadata"]["name"]]

    async def until(self, holds: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
        """Poll until something is true, and give it back; say what was awaited where it never is."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not (found := holds()):
            assert loop.time() < deadline, f"never came: {what}"
            await asyncio.sleep(POLL_SECONDS)
        return found

    async def until_condition(
        self, manifest: Manifest, kind: str = "Ready", status: str = "True", reason: str | None = None
    ) -> Manifest:
        """Poll until a condition of the present generation is so."""
        name = f"{manifest['kind']} {manifest['metadata']['name']}"

        def found() -> Manifest | None:
            live = self.get(manifest)
            conditions = live.get("status", {}).get("conditions", [])
            for condition in conditions:
                if (
                    condition["type"] == kind
                    and condition["status"] == status
                    and reason in (None, condition["reason"])
                    and condition["observedGeneration"] == live["metadata"]["generation"]
                ):
                    return dict(condition)
            return None

        try:
            return dict(await self.until(found, f"{kind}={status} {reason or ''} of {name}"))
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(self.status(manifest), indent=1)}") from None

    # What is on the broker.

    @property
    def management_url(self) -> str:
        parts = urlsplit(self.services.rabbitmq.management_url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port}"

    def broker(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the management API as an administrator; `{vhost}` in the path is that of these tests."""
        return management(self.services, method, path.replace("{vhost}", quote(self.vhost, safe="")), body)

    def queues(self) -> dict[str, Manifest]:
        """The queues with their arguments."""
        found = self.broker("GET", "queues/{vhost}?disable_stats=true&enable_queue_totals=true")
        return {queue["name"]: queue for queue in found}

    def messages(self, queue: str) -> int:
        """How many messages wait in a queue, where they stay. The listings count them some seconds late."""
        peek = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}
        return len(self.broker("POST", f"queues/{{vhost}}/{quote(queue, safe='')}/get", peek))

    def exchanges(self) -> set[str]:
        found = self.broker("GET", "exchanges/{vhost}")
        return {each["name"] for each in found if each["name"] and not each["name"].startswith("amq.")}

    def bindings(self, queue: str) -> set[tuple[str, str]]:
        """The exchange and key of each binding of a queue, but for the default exchange's."""
        found = self.broker("GET", f"queues/{{vhost}}/{quote(queue, safe='')}/bindings")
        return {(each["source"], each["routing_key"]) for each in found if each["source"]}

    def broker_users(self) -> set[str]:
        """The users that were made for resources of this namespace."""
        found = self.broker("GET", "users")
        return {user["name"] for user in found if f".{self.namespace}." in user["name"]}

    # The operator.

    @asynccontextmanager
    async def operating(self, *, has_neighbours: bool = False, **settings: Any) -> AsyncIterator[Operator]:
        """An operator in this process that leads without asking, in this namespace alone.

        It looks for KEDA and Prometheus' operator only where it is told to: all tests share the cluster.
        """
        chosen = {
            "namespaces": (self.namespace,),
            "drift_seconds": 0.5,
            "count_seconds": 0.2,
            "relay_image": "relay:1",
            "installation": "tests",
            **settings,
        }
        connection = await Connection.open({"KUBECONFIG": str(self.identity.kubeconfig)})
        fence = Fence(_DAY_SECONDS)
        fence.open(uptime())
        kind = Operator if has_neighbours else _Secluded
        operator = kind(Settings(**chosen), connection, fence, Metrics(CollectorRegistry()))
        running = asyncio.create_task(operator.run())
        try:
            yield operator
            assert not running.done(), f"the operator ended: {running.exception()}"
        finally:
            running.cancel()
            await asyncio.wait([running])
            await connection.close()


def operator_identity(api: Api, namespace: str, folder: Path) -> Identity:
    """Somebody who may do in a namespace what the chart's roles allow, and nothing else."""
    rights = [right.manifest() for right in (*RESOURCE_RIGHTS, *LEASE_RIGHTS)]
    return identity(api, namespace, folder, {namespace: rights})
