"""What controllers and kubelets do, done by a test: the control plane of these tests has none of them."""

from base64 import b64decode
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from outbox_operator.children.names import fitted
from outbox_operator.children.notes import retired_secrets, secret_of
from outbox_operator.operator import Operator
from tests.operator.control_plane.api import Manifest, RefusedError
from tests.operator.counting import samples
from tests.operator.site import Site

_MERGE = "application/merge-patch+json"
_LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Pods:
    """The Deployment of a resource, its Secrets and its pods, as those see them who run them."""

    site: Site
    owner: Manifest

    # What the operator made.

    @property
    def component(self) -> str:
        return "relay" if self.owner["kind"] == "OutboxRelay" else "worker"

    @property
    def name(self) -> str:
        """What the Deployment is called, and whatever else there is one of."""
        return fitted(f"{self.owner['metadata']['name']}-{self.component}", 54)

    @property
    def deployment(self) -> Manifest:
        return self.site.get({"kind": "Deployment", "metadata": {"name": self.name}})

    async def until_made(self) -> Manifest:
        """The Deployment, once it is there and the resource says so."""
        made = lambda: self.site.find("Deployment", self.name)  # noqa: E731 - awaited in the next line
        found: Manifest = await self.site.until(made, f"Deployment {self.name}")
        await self.site.until(lambda: self.site.status(self.owner).get("selector"), "its pods in the status")
        return found

    @property
    def container(self) -> Manifest:
        container: Manifest = self.deployment["spec"]["template"]["spec"]["containers"][0]
        return container

    @property
    def secret_name(self) -> str:
        """The Secret that its pods begin with."""
        name = secret_of(self.deployment)
        assert name is not None
        return name

    async def until_another_secret(self, than: str) -> str:
        def found() -> str | None:
            return name if (name := self.secret_name) != than else None

        return str(await self.site.until(found, f"pods with another Secret than {than}"))

    async def until_only_secret(self, name: str) -> None:
        """Wait until no other is left, and the Deployment says so."""
        await self.site.until(lambda: self.secrets().keys() == {name}, f"the end of all Secrets but {name}")
        await self.site.until(lambda: not retired_secrets(self.deployment), "that nothing is left to retire")

    def secrets(self) -> dict[str, Manifest]:
        """The Secrets that the operator made for it."""
        query = urlencode({"labelSelector": self.selector})
        found = self.site.api.request("GET", f"/api/v1/namespaces/{self.site.namespace}/secrets?{query}")
        return {secret["metadata"]["name"]: secret for secret in found["items"]}

    def secret(self, name: str | None = None) -> dict[str, str]:
        """What is in one of them; that of pods which begin now, where none is named."""
        path = f"/api/v1/namespaces/{self.site.namespace}/secrets/{name or self.secret_name}"
        data = self.site.api.request("GET", path)["data"]
        return {key: b64decode(value).decode() for key, value in data.items()}

    @property
    def broker_uri(self) -> str:
        """How a pod that begins now enters the broker."""
        return self.secret()["broker-uri"]

    @property
    def selector(self) -> str:
        labels = self.deployment["spec"]["selector"]["matchLabels"]
        return ",".join(f"{label}={value}" for label, value in sorted(labels.items()))

    # What the Deployment's controller does.

    def report(self, **status: Any) -> None:
        """Write the Deployment's status, about its spec as it is."""
        observed = {"observedGeneration": self.deployment["metadata"]["generation"]}
        path = self.site.path_of({"kind": "Deployment", "metadata": {"name": self.name}})
        self.site.api.request("PATCH", f"{path}/status", {"status": {**observed, **status}}, _MERGE)

    def roll_out(self) -> None:
        """All pods are of the newest template, and available."""
        wanted = self.deployment["spec"]["replicas"]
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        self.report(**dict.fromkeys(counts, wanted), unavailableReplicas=None, conditions=None)

    def begin_rollout(self) -> None:
        """One pod of the newest template was made beside those that there are, and is not ready yet."""
        wanted = self.deployment["spec"]["replicas"]
        self.report(replicas=wanted + 1, updatedReplicas=1, readyReplicas=wanted, availableReplicas=wanted)

    def report_condition(self, kind: str, status: str, reason: str, message: str) -> None:
        at = {"lastTransitionTime": _LONG_AGO, "lastUpdateTime": _LONG_AGO}
        condition = {"type": kind, "status": status, "reason": reason, "message": message, **at}
        self.report(conditions=[condition])

    # What kubelets do.

    def make_pod(self, name: str, state: Manifest, **container: Any) -> None:
        """A pod on some node, by the labels that the status tells, whose container is in this state."""
        self._make_service_account()
        selector = self.site.status(self.owner)["selector"]
        labels = dict(pair.split("=") for pair in selector.split(","))
        spec = {"containers": [{"name": self.component, "image": "i"}], "nodeName": "node"}
        pods = f"/api/v1/namespaces/{self.site.namespace}/pods"
        self.site.api.request("POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        told = {"ready": False, "restartCount": 0, "image": "i", "imageID": "", **container}
        status = {"containerStatuses": [{"name": self.component, "state": state, **told}]}
        self.site.api.request("PATCH", f"{pods}/{name}/status", {"status": status}, _MERGE)

    def make_running_pod(self, name: str) -> None:
        self.make_pod(name, {"running": {"startedAt": _LONG_AGO}}, ready=True)

    def stop_pod(self, name: str) -> None:
        """It was asked to go, and has something under way."""
        self.site.api.request("DELETE", f"/api/v1/namespaces/{self.site.namespace}/pods/{name}")

    def end_pod(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.site.namespace}/pods/{name}?gracePeriodSeconds=0"
        self.site.api.request("DELETE", path)

    def _make_service_account(self) -> None:
        path = f"/api/v1/namespaces/{self.site.namespace}/serviceaccounts"
        try:
            self.site.api.request("POST", path, {"metadata": {"name": "default"}})
        except RefusedError as error:
            if "already exists" not in str(error):
                raise


def users_of(site: Site, manifest: Manifest) -> set[str]:
    """The broker users that were made for a resource, or for one of its name before it."""
    kind = "relay" if manifest["kind"] == "OutboxRelay" else "listener"
    beginning = f"outbox.{kind}.{site.namespace}.{manifest['metadata']['name']}."
    return {name for name in site.broker_users() if name.startswith(beginning)}


async def another_look(site: Site, operator: Operator, manifest: Manifest) -> None:
    """Have a resource looked at once more, and wait until that is done and nothing follows from it."""
    kind = manifest["kind"]

    def looks() -> float:
        counts = samples(operator.world.metrics.reconciles)
        return sum(value for labels, value in counts if labels["kind"] == kind)

    before = looks()
    note = {"metadata": {"annotations": {"example.org/looks": str(before)}}}
    site.patch(manifest, note)
    await site.until(lambda: looks() > before, f"another look at {kind}")
    await site.until(lambda: operator.world.queue.is_idle, "an operator with nothing to do")
