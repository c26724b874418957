"""The shop of examples/ in a namespace: its pods, what it placed, and what its listeners did."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outbox_operator.children.names import MANAGED_BY_SELECTOR
from tests.e2e.kubectl import Kubectl, Manifest, until
from tests.e2e.namespaces import fresh_namespace
from tests.images.catalogue import REPOSITORY, SHOP

MANIFESTS = REPOSITORY / "examples" / "shop" / "manifests"
FILES = ("services.yaml", "secrets.yaml", "relay.yaml", "listeners.yaml")
"""Everything but the application."""
_REDRIVE = (Path(__file__).parent / "redrive.py").read_text()
_DATABASE = "postgresql://shop:for-trying-only@127.0.0.1/shop"
_READY_SECONDS = 180.0


@dataclass(frozen=True)
class Shop:
    """A namespace with the example in it."""

    kubectl: Kubectl
    namespace: str

    # Its parts

    def apply(self, *files: str) -> None:
        """Files of the example, as they are."""
        self("apply", *(f"--filename={MANIFESTS / file}" for file in files))

    def wait_until_ready(self, *resources: str) -> None:
        """These, such as obl/book; without any, all relays and listeners."""
        wanted = resources or ("obr,obl", "--all")
        self.kubectl(
            "wait",
            f"--namespace={self.namespace}",
            "--for=condition=Ready",
            f"--timeout={_READY_SECONDS:g}s",
            *wanted,
            seconds=_READY_SECONDS + 30,
        )

    def __call__(self, command: str, *arguments: str, text: str = "") -> str:
        """kubectl in this namespace."""
        return self.kubectl(command, f"--namespace={self.namespace}", *arguments, text=text)

    def get(self, *arguments: str) -> Manifest:
        """An object, or a list of them."""
        return self.kubectl.get(f"--namespace={self.namespace}", *arguments)

    def condition(self, resource: str, kind: str = "Ready") -> Manifest:
        """A condition of a resource, such as obr/shop; empty where it has none of that type."""
        conditions: list[Manifest] = self.get(resource).get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def pods(self, resource: str) -> list[Manifest]:
        """The pods of a relay or listener, such as obl/book, that are not about to go."""
        selector = self.get(resource)["status"]["selector"]
        pods: list[Manifest] = self.get("pods", f"--selector={selector}")["items"]
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def patch(self, resource: str, **spec: Any) -> None:
        """Change something in the spec of a resource."""
        self("patch", resource, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def workloads(self) -> dict[str, int]:
        """What runs for all relays and listeners: each pod, by a name that no other has, with its restarts,
        and each Deployment with its generation."""
        made = f"--selector={MANAGED_BY_SELECTOR}"
        pods = {
            f"pod {pod['metadata']['name']} {pod['metadata']['uid']}": _restarts(pod)
            for pod in self.get("pods", made)["items"]
        }
        deployments = self.get("deployments", made)["items"]
        names = (each["metadata"] for each in deployments)
        return pods | {f"deployment {each['name']} {each['uid']}": each["generation"] for each in names}

    def wait_until_looked_at(self) -> None:
        """Have an operator look at all relays and listeners, whatever it has seen of them before. No pod has
        a reason to change by that."""
        names = self("get", "obr,obl", "--output=name").split()
        for is_paused in (True, False):
            patch = json.dumps({"spec": {"paused": is_paused}})
            self("patch", *names, "--type=merge", f"--patch={patch}")
        until("all relays and listeners were looked at", lambda: all(map(_is_observed, self._resources())))

    def _resources(self) -> list[Manifest]:
        found: list[Manifest] = self.get("obr,obl")["items"]
        return found

    # The application

    def place_orders(self, first: int, count: int, *, per_second: float = 0, remind_after: float = 1) -> None:
        """Begin orders, of which every second one is rolled back, and wait until that is done."""
        job = self.begin_orders(first, count, per_second=per_second, remind_after=remind_after)
        self.wait_for_job(job, 120 + (count / per_second if per_second else 0))

    def begin_orders(self, first: int, count: int, *, per_second: float = 0, remind_after: float = 1) -> str:
        """The same without the wait; the name of the Job that does it."""
        job = yaml.safe_load((MANIFESTS / "application.yaml").read_text())
        job["metadata"]["name"] = name = f"orders-{first}"
        pod = job["spec"]["template"]["spec"]
        # The first process of a container does not hear a signal that it has no answer for.
        pod["terminationGracePeriodSeconds"] = 1
        [container] = pod["containers"]
        container["args"] = [
            f"--first={first}",
            f"--orders={count}",
            f"--per-second={per_second}",
            f"--remind-after={remind_after}",
        ]
        self("apply", "--filename=-", text=json.dumps(job))
        return str(name)

    def stop_orders(self, job: str) -> None:
        """End them in the middle, by force."""
        self("delete", "job", job, "--cascade=foreground")

    def wait_for_job(self, name: str, seconds: float = 120) -> str:
        """Wait until a Job is complete; what its pod wrote."""
        until(f"job {name} in {self.namespace} is complete", lambda: self._is_complete(name), seconds)
        return self("logs", f"job/{name}")

    def _is_complete(self, job: str) -> bool:
        status = self.get("job", job).get("status", {})
        ended = {
            condition["type"] for condition in status.get("conditions", []) if condition["status"] == "True"
        }
        assert "Failed" not in ended, f"job {job} failed:\n{self('logs', f'job/{job}', '--tail=20')}"
        return "Complete" in ended

    # The ledger

    def orders(self) -> set[int]:
        """The numbers of the orders that were placed."""
        return {row["id"] for row in self.rows("SELECT id FROM orders")}

    def bookings(self) -> set[int]:
        """The orders that were booked; none can be booked twice."""
        return {row["order_id"] for row in self.rows("SELECT order_id FROM bookings")}

    def journal(self, event: str) -> Counter[int]:
        """How often a listener did its work for each order: of mail, charge or reminder."""
        rows = self.rows(f"SELECT order_id, count(*) FROM journal WHERE event = '{event}' GROUP BY order_id")
        return Counter({row["order_id"]: row["count"] for row in rows})

    def attempts(self, event: str) -> Counter[int]:
        """At which attempt it did, and how often at that."""
        rows = self.rows(f"SELECT attempt, count(*) FROM journal WHERE event = '{event}' GROUP BY attempt")
        return Counter({row["attempt"]: row["count"] for row in rows})

    def pending(self) -> int:
        """How many messages are in the outbox still."""
        [row] = self.rows("SELECT count(*) FROM outbox_table WHERE sent_at IS NULL")
        return int(row["count"])

    def rows(self, query: str) -> list[dict[str, Any]]:
        """What a query of the shop's database brings."""
        asked = f"SELECT coalesce(json_agg(found), '[]') FROM ({query}) AS found"
        rows: list[dict[str, Any]] = json.loads(self.psql(asked))
        return rows

    def psql(self, statement: str) -> str:
        """What it prints."""
        psql = ("psql", _DATABASE, "--no-psqlrc", "--tuples-only", "--no-align", f"--command={statement}")
        return self("exec", "postgres-0", "--", *psql)

    # The broker

    def queues(self) -> dict[str, int]:
        """How many messages each queue has, those under way included."""
        found = json.loads(self.rabbitmqctl("list_queues", "name", "messages", "--formatter=json"))
        return {queue["name"]: queue["messages"] for queue in found}

    def queue(self, listener: str) -> str:
        """The name of a listener's queue."""
        return f"{self.namespace}.{listener}"

    def rabbitmqctl(self, *arguments: str) -> str:
        """What it prints."""
        return self("exec", "rabbitmq-0", "--", "rabbitmqctl", "--quiet", *arguments)

    def redrive(self, listener: str) -> int:
        """Move all that is in its dead-letter queue back; how many messages that were."""
        said = self.run("redrive", [_REDRIVE, self.queue(listener)])
        return int(said.splitlines()[-1])

    def run(self, name: str, arguments: Sequence[str]) -> str:
        """Run a Python program in a pod that may do everything at the broker; what it writes."""
        job = yaml.safe_load((MANIFESTS / "application.yaml").read_text())
        job["metadata"]["name"] = name
        [container] = job["spec"]["template"]["spec"]["containers"]
        container |= {"image": SHOP.name, "command": ["python", "-c", *arguments]}
        container["args"] = []
        broker = {"secretKeyRef": {"name": "shop-rabbitmq", "key": "uri"}}
        container["env"].append({"name": "BROKER_URL", "valueFrom": broker})
        self("apply", "--filename=-", text=json.dumps(job))
        said = self.wait_for_job(name)
        self("delete", "job", name)
        return said


def _is_observed(resource: Manifest) -> bool:
    return bool(resource["status"].get("observedGeneration") == resource["metadata"]["generation"])


def _restarts(pod: Manifest) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


@contextmanager
def open_shop(kubectl: Kubectl, *files: str, changes: Mapping[str, Manifest] | None = None) -> Iterator[Shop]:
    """A shop of its own that is ready, in a namespace that enforces restricted pod security; with `files`,
    no more of it than these, and with `changes`, other values in the spec of a resource, such as obl/book."""
    with fresh_namespace(kubectl, "shop") as namespace:
        shop = Shop(kubectl, namespace)
        shop.apply(*(files or FILES))
        for resource, spec in (changes or {}).items():
            shop.patch(resource, **spec)
        shop.wait_until_ready()
        yield shop
