"""Resources that went and left a broker user behind, which nothing else would take away.

As much as can be done without a finalizer: what goes while no operator runs leaves its user.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outbox_core.logs import event
from outbox_operator.broker.actions import RemoveUser
from outbox_operator.broker.snapshot import Reason, Snapshot
from outbox_operator.broker.vhosts import Vhosts
from outbox_operator.children.names import Owner
from outbox_operator.planning.pod_credentials import users_of
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.work_queue import WorkQueue
from outbox_operator.reconciling.world import Entry

_RETRY_SECONDS = 1.0
_GIVE_UP_SECONDS = 3600.0
"""How long a broker that cannot be reached is kept in mind for the user that is left there."""

_log = logging.getLogger("outbox.operator")


@dataclass(frozen=True, slots=True)
class _Present:
    owner: Owner
    entry: Entry
    users: tuple[str, ...]
    """Its broker users, as of the last time that the virtual host was seen."""


@dataclass(frozen=True, slots=True)
class _Departed:
    owner: Owner
    users: tuple[str, ...]
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
        self._present: dict[Key, _Present] = {}
        self._departed: dict[Key, list[_Departed]] = {}

    async def is_there(self, key: Key, owner: Owner, entry: Entry | None) -> None:
        """A resource is there; `entry` is how its pods enter the broker, where it has any."""
        known = self._present.get(key)
        if known is not None and known.owner.metadata.uid != owner.metadata.uid:
            await self._depart(key)
            known = None
        if entry is not None and entry.vhost is not None:
            before = known.users if known else ()
            users = users_of(owner, entry.snapshot) if entry.snapshot else before
            self._present[key] = _Present(owner, entry, users)
        await self._clean_up(key, is_succeeded=True)

    async def is_gone(self, key: Key) -> None:
        """A resource is not there: the first time keep the way to its broker, later take its users away."""
        await self._depart(key)
        await self._clean_up(key, is_succeeded=False)

    async def _depart(self, key: Key) -> None:
        known = self._present.pop(key, None)
        if known is None or known.entry.vhost is None:
            return
        departed = _Departed(known.owner, known.users, time.monotonic() + self._grace_seconds)
        await self._vhosts.use(departed.visitor, known.entry.vhost.access)
        self._departed.setdefault(key, []).append(departed)

    async def _clean_up(self, key: Key, *, is_succeeded: bool) -> None:
        """Remove the users that are due; `is_succeeded` is whether pods of that name may be another's."""
        left = self._departed.get(key, [])
        for departed in tuple(left):
            is_due = time.monotonic() >= departed.due
            is_ended = is_due and (is_succeeded or not await self._has_pods(departed.owner))
            if is_ended and await self._is_rid_of_users(departed):
                await self._vhosts.release(departed.visitor)
                left.remove(departed)
        if not left:
            self._departed.pop(key, None)
            return
        soonest = min(departed.due for departed in left) - time.monotonic()
        self._queue.add_after(key, soonest if soonest > 0 else max(self._grace_seconds, _RETRY_SECONDS))

    async def _is_rid_of_users(self, departed: _Departed) -> bool:
        """Remove the users; False if that has to be tried again, as the broker has a problem."""
        vhost = self._vhosts.of(departed.visitor)
        if vhost is None:
            return True
        state = vhost.state
        if isinstance(state, Snapshot) or (state and state.reason == Reason.VHOST_MISSING):
            # Users are the broker's, and outlast their virtual host.
            names = users_of(departed.owner, state) if isinstance(state, Snapshot) else departed.users
            problem = await vhost.perform([RemoveUser(name) for name in names])
            if problem is None:
                return True
            state = problem
        is_last = time.monotonic() >= departed.due + _GIVE_UP_SECONDS
        cause = state.message if state else "the broker has not been looked at yet"
        level, path = logging.WARNING if is_last else logging.INFO, departed.owner.metadata.path
        event(_log, level, "broker users not removed", resource=path, cause=cause)
        return is_last
