"""What a watch shows of custom resources, as everybody may see it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import aiohttp

_PATIENCE_SECONDS = 120.0

Said: TypeAlias = tuple[str, str]
"""The status and the reason of a condition."""


@dataclass
class Sight:
    """One resource, as it was last seen."""

    version: int
    """Grows over all objects: which of two was written first can be told by it."""
    generation: int = 0
    observed_generation: int = 0
    conditions: dict[str, Said] = field(default_factory=dict)
    """What is said, by the type of the condition."""
    denials: dict[int, str] = field(default_factory=dict)
    """Every time that it began to be not ready: the version, and the reason."""

    @property
    def is_observed(self) -> bool:
        """Whether what is said is about the present spec."""
        return self.observed_generation == self.generation > 0

    @property
    def is_ready(self) -> bool:
        return self.is_observed and self.conditions.get("Ready", ("", ""))[0] == "True"

    def see(self, resource: dict[str, Any]) -> None:
        metadata, status = resource["metadata"], resource.get("status", {})
        before = self.conditions.get("Ready", ("", ""))[0]
        self.version = int(metadata["resourceVersion"])
        self.generation = metadata["generation"]
        self.observed_generation = status.get("observedGeneration", 0)
        self.conditions = {
            each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())
        }
        now, reason = self.conditions.get("Ready", ("", ""))
        if now == "False" and before != "False":
            self.denials[self.version] = reason


class Watch:
    """All resources of a kind in a namespace, kept as they are."""

    def __init__(self, session: aiohttp.ClientSession, path: str) -> None:
        self.sights: dict[str, Sight] = {}
        """By name; those that went are not there any more."""
        self.first_version = 0
        """Which version of any of them was the first to be seen."""
        self._session = session
        self._path = path
        self._news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def opened(cls, session: aiohttp.ClientSession, path: str) -> AsyncIterator["Watch"]:
        watch = cls(session, path)
        watch._following = asyncio.create_task(watch._follow(await watch._list()))
        try:
            yield watch
        finally:
            watch._following.cancel()
            await asyncio.wait([watch._following])

    async def until(self, what: str, holds: Callable[[], bool], names: Collection[str] = ()) -> float:
        """Wait until these are all there and it holds; the moment on `time.monotonic`."""
        wanted = set(names)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not (wanted <= self.sights.keys() and holds()):
                    if self._following and self._following.done():
                        self._following.result()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(
                f"after {_PATIENCE_SECONDS:g} s it is still not so that {what}: {self._summary()}"
            ) from None
        return time.monotonic()

    async def until_all(self, what: str, names: Collection[str], holds: Callable[[Sight], bool]) -> float:
        """Wait until it holds for each of these."""
        return await self.until(what, lambda: all(holds(self.sights[name]) for name in names), names)

    async def until_gone(self, names: Collection[str]) -> float:
        """Wait until none of these is there."""
        return await self.until("they are gone", lambda: self.sights.keys().isdisjoint(names))

    async def _follow(self, version: str) -> None:
        try:
            while True:
                await self._watch(version)
                # A server that is busy ends the watches of those who are slow to read.
                version = await self._list()
        finally:
            self._news.set()

    async def _list(self) -> str:
        """See all that is there, and tell from which version on to watch."""
        async with self._session.get(self._path) as response:
            response.raise_for_status()
            listed = await response.json()
        items = {item["metadata"]["name"]: item for item in listed["items"]}
        for name in self.sights.keys() - items.keys():
            del self.sights[name]
        for item in items.values():
            self._see({"type": "ADDED", "object": item})
        self._news.set()
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        query = {"watch": "true", "timeoutSeconds": "3600", "resourceVersion": version}
        forever = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._path, params=query, timeout=forever) as response:
            response.raise_for_status()
            async for line in response.content:
                self._see(json.loads(line))

    def _see(self, event: dict[str, Any]) -> None:
        resource = event["object"]
        match event["type"]:
            case "ADDED" | "MODIFIED":
                name, version = resource["metadata"]["name"], int(resource["metadata"]["resourceVersion"])
                self.first_version = self.first_version or version
                self.sights.setdefault(name, Sight(version)).see(resource)
            case "DELETED":
                self.sights.pop(resource["metadata"]["name"], None)
            case other:
                raise RuntimeError(f"the watch ended with {other}: {resource}")
        self._news.set()

    def _summary(self) -> str:
        """How many are how, for a person who has to find out why."""
        counts: dict[Said, int] = {}
        for sight in self.sights.values():
            said = sight.conditions.get("Ready", ("", "nothing said"))
            counts[said] = counts.get(said, 0) + 1
        return (
            ", ".join(f"{count} {' '.join(said).strip()}" for said, count in counts.items())
            or "nothing is there"
        )
