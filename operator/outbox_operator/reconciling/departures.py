"""Resources that went and left a broker user behind, which nothing else would take away.

As much as can be done without a finalizer: what goes while no operator runs leaves its user.
"""

import time
from dataclasses import dataclass

from outbox_operator.broker.actions import RemoveUser
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.broker.vhosts import Vhosts
from outbox_operator.children.names import Owner
from outbox_operator.planning.pod_credentials import is_user_of
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.work_queue import WorkQueue
from outbox_operator.reconciling.world import Entry


@dataclass(frozen=True, slots=True)
class _Departed:
    owner: Owner
    due: float


class Departures:
    """Who is there, who went, and when their users may go."""

    def __init__(self, vhosts: Vhosts, queue: WorkQueue[Key], grace_seconds: float) -> None:
        self._vhosts = vhosts
        self._queue = queue
        self._grace_seconds = grace_seconds
        self._present: dict[Key, tuple[Owner, Entry]] = {}
        self._departed: dict[Key, _Departed] = {}

    def is_there(self, key: Key, owner: Owner, entry: Entry) -> None:
        """A resource has pods, or had."""
        self._present[key] = owner, entry

    async def is_gone(self, key: Key) -> None:
        """A resource is not there: the first time keep the way to its broker, later take its users away."""
        if known := self._present.pop(key, None):
            owner, entry = known
            if entry.vhost is None:
                return
            await self._vhosts.use(_visitor(key), entry.vhost.access)
            self._departed[key] = _Departed(owner, time.monotonic() + self._grace_seconds)
            self._queue.add_after(key, self._grace_seconds)
            return
        departed = self._departed.get(key)
        if departed is None or time.monotonic() < departed.due:
            return
        vhost = self._vhosts.of(_visitor(key))
        if vhost is not None and isinstance(vhost.state, Snapshot):
            names = [name for name in vhost.state.users or () if is_user_of(departed.owner, name)]
            await vhost.perform([RemoveUser(name) for name in names])
        del self._departed[key]
        await self._vhosts.release(_visitor(key))


def _visitor(key: Key) -> str:
    return f"{key} that was"
