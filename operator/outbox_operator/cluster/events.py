"""Kubernetes Events: what `kubectl describe` shows of a resource's life."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from outbox_core.logs import event
from outbox_core.printable import printable
from outbox_operator.cluster.client import MANAGER, Cluster
from outbox_operator.cluster.errors import ClusterError
from outbox_operator.cluster.kinds import EVENT, Kind, Manifest
from outbox_operator.resources.metadata import Metadata

EventType: TypeAlias = Literal["Normal", "Warning"]

_MOST_WAITING = 5000
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.05
_MOST_BYTES = 1024
_MOST_OF_A_NAME = 200

_log = logging.getLogger("outbox.operator.events")


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an Event is about."""

    kind: Kind
    """Its kind."""
    namespace: str
    """Its namespace, which is the Event's too."""
    name: str
    """Its name."""
    uid: str
    """Which of that name."""
    resource_version: str = ""
    """Which version of it."""

    @classmethod
    def to(cls, kind: Kind, metadata: Metadata) -> "Reference":
        """To an object with this metadata."""
        return cls(kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)


class Recorder:
    """Writes Events one after the other, beside everything else: nobody waits for an Event."""

    def __init__(self, cluster: Cluster, is_busy: Callable[[], bool] = lambda: False) -> None:
        """While `is_busy`, Events wait for a few seconds: what they tell of has been written already."""
        self._cluster = cluster
        self._is_busy = is_busy
        self._waiting: asyncio.Queue[tuple[float, Manifest]] = asyncio.Queue(_MOST_WAITING)

    def add(self, about: Reference, event_type: EventType, reason: str, message: str) -> None:
        """Have it written before long."""
        made = manifest(about, event_type, reason, message, datetime.now(UTC))
        try:
            self._waiting.put_nowait((time.monotonic(), made))
        except asyncio.QueueFull:
            event(_log, logging.WARNING, "event not written", reason=reason, cause="too many wait")

    async def run(self) -> None:
        """Write what comes, until cancelled."""
        while True:
            since, made = await self._waiting.get()
            while self._is_busy() and time.monotonic() - since < _PATIENCE_SECONDS:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
            await _write(self._cluster, made)


async def record(
    cluster: Cluster,
    about: Reference,
    event_type: EventType,
    reason: str,
    message: str,
) -> None:
    """Write it; where that fails, say so in the log. Nothing depends on an Event."""
    await _write(cluster, manifest(about, event_type, reason, message, datetime.now(UTC)))


async def _write(cluster: Cluster, made: Manifest) -> None:
    try:
        await cluster.create(made)
    except ClusterError as error:
        event(_log, logging.WARNING, "event not written", reason=made["reason"], cause=str(error))


def manifest(
    about: Reference,
    event_type: EventType,
    reason: str,
    message: str,
    now: datetime,
) -> Manifest:
    """The Event, as the API server takes it."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"namespace": about.namespace, "generateName": f"{about.name[:_MOST_OF_A_NAME]}."},
        "involvedObject": {
            "apiVersion": about.kind.api_version,
            "kind": about.kind.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        },
        "type": event_type,
        "reason": reason,
        "message": _short(printable(message)),
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": MANAGER,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _short(message: str) -> str:
    if len(message.encode()) <= _MOST_BYTES:
        return message
    return message.encode()[: _MOST_BYTES - len("…".encode())].decode(errors="ignore") + "…"
