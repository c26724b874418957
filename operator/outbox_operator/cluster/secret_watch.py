"""The Secrets that resources refer to, one watch for each, and no others."""

import asyncio
import base64
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, TracebackType
from typing import Self, TypeAlias

from outbox_core.logs import event
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.errors import ClusterError
from outbox_operator.cluster.kinds import SECRET, Manifest
from outbox_operator.cluster.store import Place, version_of
from outbox_operator.faults import Faults

SecretData: TypeAlias = Mapping[str, bytes]
"""What is in a Secret, by key."""

_MOST_OF_A_NAMESPACE = 512
"""How many Secrets of one namespace are followed: each takes a connection, and up to a megabyte."""

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0

_log = logging.getLogger("outbox.operator.secrets")


class SecretWatch:
    """Knows the data of the Secrets that it follows, and tells when they are another.

        async with SecretWatch(cluster, on_change) as secrets:
            secrets.follow("shop", "shop-db")
            data = await secrets.read("shop", "shop-db")

    It needs to get and watch Secrets, and not to list them. Each watch holds a connection.
    """

    def __init__(
        self, cluster: Cluster, on_change: Callable[[str, str], None], faults: Faults | None = None
    ) -> None:
        """`on_change` is told the namespace and name of a Secret that is another than was known."""
        self._cluster = cluster
        self._on_change = on_change
        self._faults = faults or Faults()
        self._group = asyncio.TaskGroup()
        self._watches: dict[Place, asyncio.Task[None]] = {}
        self._known: dict[Place, SecretData | None] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.set_references(())
        await self._group.__aexit__(kind, error, trace)

    def set_references(self, references: Collection[Place]) -> None:
        """Follow these from now on and no others."""
        for place in self._watches.keys() - set(references):
            self.unfollow(*place)
        followed = Counter(namespace for namespace, _ in self._watches)
        for namespace, name in sorted(set(references) - self._watches.keys()):
            # The others are read anew by each look at what names them.
            if followed[namespace] < _MOST_OF_A_NAMESPACE:
                followed[namespace] += 1
                self.follow(namespace, name)

    def follow(self, namespace: str, name: str) -> None:
        """Watch a Secret, whether it is there or not."""
        place = (namespace, name)
        if place not in self._watches:
            self._watches[place] = self._group.create_task(
                self._watch(place), name=f"secret {namespace}/{name}"
            )

    def unfollow(self, namespace: str, name: str) -> None:
        """Watch it no more, and forget what was in it."""
        if watch := self._watches.pop((namespace, name), None):
            watch.cancel()
        self._known.pop((namespace, name), None)

    async def read(self, namespace: str, name: str) -> SecretData | None:
        """What is in it, or None where it is not there. One that is followed is asked for once."""
        place = (namespace, name)
        if place in self._known:
            return self._known[place]
        data = _data(await self._cluster.get(SECRET, namespace, name))
        if place not in self._watches:
            return data
        # Its watch may have been faster, and has seen more.
        return self._known.setdefault(place, data)

    async def _watch(self, place: Place) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            is_well: bool | None = None
            with self._faults.contained("secrets", "/".join(place)):
                is_well = await self._followed(place)
            pause = _FIRST_PAUSE_SECONDS if is_well else min(pause * 2, _LONGEST_PAUSE_SECONDS)
            # Spread, for all of them end when the API server restarts.
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret

    async def _followed(self, place: Place) -> bool:
        """Watch until the API server ends it; whether anything was heard."""
        is_heard = False
        try:
            async with self._cluster.watch(SECRET, *place) as events:
                # A watch says nothing of a Secret that is not there.
                found = await self._cluster.get(SECRET, *place)
                self._see(place, found)
                async for type_, manifest in events:
                    is_heard = True
                    if type_ != "BOOKMARK" and _is_newer(manifest, found):
                        self._see(place, None if type_ == "DELETED" else manifest)
        except ClusterError as error:
            event(_log, logging.WARNING, "secret not watched", secret="/".join(place), cause=str(error))
            return is_heard
        return True

    def _see(self, place: Place, manifest: Manifest | None) -> None:
        data = _data(manifest)
        is_news = place in self._known and self._known[place] != data
        self._known[place] = data
        if is_news:
            self._on_change(*place)


def _is_newer(manifest: Manifest, found: Manifest | None) -> bool:
    return found is None or version_of(manifest).is_newer_than(version_of(found))


def _data(manifest: Manifest | None) -> SecretData | None:
    if manifest is None:
        return None
    found = manifest.get("data") or {}
    return MappingProxyType({key: base64.b64decode(value) for key, value in found.items()})
