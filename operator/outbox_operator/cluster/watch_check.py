"""Whether the watches still tell the truth: a list, now and then, compared with what they told.

A watch can die while its process lives. And kopf, when it has to list again, says nothing of the objects that
went meanwhile: those are taken out of the store here.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from outbox_core.logs import event
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.errors import BusyError, ClusterError, NotFoundError, UnreachableError
from outbox_operator.cluster.fence import uptime
from outbox_operator.cluster.kinds import DEPLOYMENT, Kind
from outbox_operator.cluster.store import MANAGED, WATCHED, Place, Store, Version, version_of

_ARRIVAL_SECONDS = 5.0
_POLL_SECONDS = 0.02
_RETRY_SECONDS = 1.0

_log = logging.getLogger("outbox.operator.watch_check")


@dataclass(frozen=True, slots=True)
class _Difference:
    """An object of which the store and the list do not say the same."""

    kind: Kind
    place: Place
    known: Version | None
    """What the store says."""
    is_listed: bool
    """Whether it is there."""


class WatchCheck:
    """Compares the store with lists of metadata: one call for each kind and namespace."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        namespaces: Sequence[str] = (),
        *,
        interval_seconds: float = 60.0,
        patience_seconds: float = 30.0,
    ) -> None:
        """A watch may be late by `patience_seconds`, and a look that finds it so is followed by another."""
        self._cluster = cluster
        self._store = store
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._interval_seconds = interval_seconds
        self._patience_seconds = patience_seconds
        self._since: dict[_Difference, float] = {}
        self._problem: str | None = None

    def problem(self) -> str | None:
        """What is wrong with the watches, or None: a check for `/livez`."""
        return self._problem

    async def wait_until_listed(self) -> dict[Kind, dict[Place, Version]]:
        """Until all can be listed; what there is.

        Raises where that will not come by itself: a right is lacking, or a kind is not defined.
        """
        while True:
            try:
                return await self._list()
            except (UnreachableError, BusyError) as error:
                event(_log, logging.WARNING, "cluster not listed", cause=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def wait_until_synced(self) -> None:
        """Until the store has all that was there when this was called; then `store.synced` is set."""
        while not self._store.synced.is_set():
            if await self._arrived(await self.wait_until_listed()):
                self._store.synced.set()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self.look()
            except ClusterError as error:
                event(_log, logging.WARNING, "cluster not listed", cause=str(error))

    async def look(self) -> None:
        """Compare once."""
        listed = await self._list()
        now = uptime()
        found = [found for kind in WATCHED for found in self._differences(kind, listed[kind])]
        # A watch that lives has changed what is known of an object by the next look.
        self._since = {difference: self._since.get(difference, now) for difference in found}
        late = [found for found, since in self._since.items() if now - since >= self._patience_seconds]
        for difference in late:
            if not difference.is_listed and difference.known is not None:
                self._store.discard(difference.kind, difference.place, difference.known)
        self._problem = _problem([difference for difference in late if difference.is_listed])

    async def _list(self) -> dict[Kind, dict[Place, Version]]:
        return {kind: await self._list_kind(kind) for kind in WATCHED}

    async def _list_kind(self, kind: Kind) -> dict[Place, Version]:
        selector = MANAGED if kind is DEPLOYMENT else ""
        found: dict[Place, Version] = {}
        for namespace in self._namespaces:
            try:
                items = await self._cluster.list(kind, namespace, selector, metadata_only=True)
            except NotFoundError as error:
                raise NotFoundError(
                    f"{kind}s are not known to this cluster; install the CustomResourceDefinitions in crds/"
                ) from error
            for item in items:
                found[item["metadata"]["namespace"], item["metadata"]["name"]] = version_of(item)
        return found

    async def _arrived(self, expected: dict[Kind, dict[Place, Version]]) -> bool:
        """Whether all of it came. Where one does not it may have gone meanwhile: the next list says."""
        deadline = uptime() + _ARRIVAL_SECONDS
        while not self._has(expected):
            if uptime() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _has(self, expected: dict[Kind, dict[Place, Version]]) -> bool:
        return all(expected[kind].keys() <= self._store.versions(kind).keys() for kind in WATCHED)

    def _differences(self, kind: Kind, listed: dict[Place, Version]) -> list[_Difference]:
        known = self._store.versions(kind)
        return [
            _Difference(kind, place, known.get(place), place in listed)
            for place in sorted(listed.keys() | known.keys())
            if listed.get(place) != known.get(place)
        ]


def _problem(late: Sequence[_Difference]) -> str | None:
    if not late:
        return None
    first = late[0]
    namespace, name = first.place
    return (
        f"the watch of {first.kind}s is dead: {namespace}/{name} changed and nobody was told"
        f"{f', nor of {len(late) - 1} others' if len(late) > 1 else ''}"
    )
