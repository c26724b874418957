"""The operator as a process, and what it says of itself."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench import processes
from outbox_cli.local.ports import free_ports

_MODULE = "outbox_operator"
_WRITES = frozenset({"create", "apply", "patch", "delete"})
"""Without `update`, which is how the Lease is renewed."""
_HTTP_SECONDS = 10.0
_QUIET_SECONDS = 2.0
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Tally:
    """What the operator has counted so far."""

    api_calls: float
    """Calls to the API server, without those of the watches."""
    api_writes: float
    """Those of them that write something, but for the Lease."""
    broker_calls: float
    """Calls to the management API."""

    def __sub__(self, earlier: "Tally") -> "Tally":
        return Tally(
            self.api_calls - earlier.api_calls,
            self.api_writes - earlier.api_writes,
            self.broker_calls - earlier.broker_calls,
        )


@dataclass(frozen=True)
class OperatorProcess:
    """One that runs."""

    pid: int
    port: int
    """Where its metrics are."""

    @classmethod
    @asynccontextmanager
    async def started(cls, kubeconfig: Path, namespaces: Sequence[str]) -> AsyncIterator["OperatorProcess"]:
        [port] = free_ports(1)
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "OUTBOX_NAMESPACES": ",".join(namespaces),
            "OUTBOX_LEASE_NAMESPACE": namespaces[0],
            "OUTBOX_PROBE_PORT": str(port),
            "OUTBOX_LOG_LEVEL": "ERROR",
        }
        with processes.running(_MODULE, environment) as process:
            yield cls(process.pid, port)

    async def tally(self) -> Tally:
        text = await asyncio.to_thread(self._metrics)
        counted: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                kind = sample.labels.get("verb", "")
                counted[sample.name, kind] = counted.get((sample.name, kind), 0.0) + sample.value
        return Tally(
            _sum(counted, "outbox_operator_api_calls_total"),
            _sum(counted, "outbox_operator_api_calls_total", _WRITES),
            _sum(counted, "outbox_operator_broker_calls_total"),
        )

    async def settled_tally(self) -> Tally:
        """The same when it writes nothing more: Events come after what they are about."""
        before, now = None, await self.tally()
        while before is None or now.api_writes != before.api_writes:
            await asyncio.sleep(_QUIET_SECONDS)
            before, now = now, await self.tally()
        return now

    @property
    def cpu_seconds(self) -> float:
        """User and system time so far."""
        return processes.cpu_seconds([self.pid])

    @property
    def megabytes(self) -> float:
        """What is resident now."""
        return processes.resident_bytes(self.pid) / _MEGABYTE

    def _metrics(self) -> str:
        # A proxy in the environment is not to be asked about 127.0.0.1.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.port}/metrics", timeout=_HTTP_SECONDS) as answer:
            return str(answer.read().decode())


def _sum(counted: dict[tuple[str, str], float], name: str, kinds: Collection[str] = ()) -> float:
    return sum(
        value for (each, kind), value in counted.items() if each == name and (not kinds or kind in kinds)
    )
