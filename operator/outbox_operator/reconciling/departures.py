"""Resources that went and left a broker user behind, which nothing else would take away.

As much as can be done without a finalizer: what goes while no operator runs leaves its user.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outbox_operator.broker.actions import RemoveUser
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.broker.vhosts import Vhosts
from outbox_operator.children.names import Owner
from outbox_operator.planning.pod_credentials import users_of
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.work_queue import WorkQueue
from outbox_operator.reconciling.world import Entry


@dataclass(frozen=True, slots=True)
class _Departed:
    owner: Owner
    due: float

    @property
    def visitor(self) -> str:
        """As whom its way to the broker is kept."""
        return f"{self.owner.metadata.uid} that was"


class Departures:
    """Who is there, who went, and when their users may go."""

    def __init__(
        self,
        vhosts: Vhosts,
        queue: WorkQueue[Key],
        has_pods: Callable[[Owner], Awaitable[bool]],
        grace_seconds: float,
    ) -> None:
        self._vhosts = vhosts
        self._queue = queue
        self._has_pods = has_pods
        self._grace_seconds = grace_seconds
        self._present: dict[Key, tuple[Owner, Entry]] = {}
        self._departed: dict[Key, list[_Departed]] = {}

    async def is_there(self, key: Key, owner: Owner, entry: Entry | None) -> None:
        """A resource is there; `entry` is how its pods enter the broker, where it has any."""
        known = self._present.get(key)
        if known is not None and known[0].metadata.uid != owner.metadata.uid:
            await self._depart(key)
        if entry is not None:
            self._present[key] = owner, entry
        await self._clean_up(key, is_succeeded=True)

    async def is_gone(self, key: Key) -> None:
        """A resource is not there: the first time keep the way to its broker, later take its users away."""
        await self._depart(key)
        await self._clean_up(key, is_succeeded=False)

    async def _depart(self, key: Key) -> None:
        owner, entry = self._present.pop(key, (None, None))
        if owner is None or entry is None or entry.vhost is None:
            return
        departed = _Departed(owner, time.monotonic() + self._grace_seconds)
        await self._vhosts.use(departed.visitor, entry.vhost.access)
        self._departed.setdefault(key, []).append(departed)

    async def _clean_up(self, key: Key, *, is_succeeded: bool) -> None:
        """Remove the users that are due; `is_succeeded` is whether pods of that name may be another's."""
        left = self._departed.get(key, [])
        for departed in tuple(left):
            is_due = time.monotonic() >= departed.due
            if is_due and (is_succeeded or not await self._has_pods(departed.owner)):
                await self._remove_users(departed)
                left.remove(departed)
        if not left:
            self._departed.pop(key, None)
            return
        soonest = min(departed.due for departed in left) - time.monotonic()
        self._queue.add_after(key, soonest if soonest > 0 else self._grace_seconds)

    async def _remove_users(self, departed: _Departed) -> None:
        vhost = self._vhosts.of(departed.visitor)
        if vhost is not None and isinstance(vhost.state, Snapshot):
            await vhost.perform([RemoveUser(name) for name in users_of(departed.owner, vhost.state)])
        await self._vhosts.release(departed.visitor)
