"""Resources that have moved to another virtual host: what they left is watched, reported and locked up."""

from dataclasses import dataclass, field, replace
from typing import Any

from outbox_operator.broker.access import BrokerAccess, VhostId
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.vhosts import Vhost
from outbox_operator.children.names import Owner
from outbox_operator.cluster.events import Reference
from outbox_operator.conditions import Finding
from outbox_operator.planning.moves import (
    Remains,
    as_before,
    drained_finding,
    is_known_in,
    moved_message,
    place_of,
    previous_places,
    remains,
)
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.outcome import Outcome
from outbox_operator.reconciling.publication import kind_of
from outbox_operator.reconciling.world import Entry, World
from outbox_operator.resources import OutboxListener
from outbox_operator.resources.virtual_host import VirtualHost


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What the status says of virtual hosts that a resource has left."""

    findings: tuple[Finding, ...] = ()
    """A condition about them, if there is something to say."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The fields about them."""


class Moves:
    """Follows resources from one virtual host to the next."""

    def __init__(self, world: World, execution: Execution) -> None:
        self._world = world
        self._execution = execution
        self._visitors: dict[Key, set[str]] = {}
        """As whom previous virtual hosts are looked at for a resource."""

    def is_known(self, owner: Owner, entry: Entry | None) -> bool:
        """Whether the virtual host has something of the resource, before anything is made there."""
        return entry is not None and entry.snapshot is not None and is_known_in(owner, entry.snapshot)

    async def follow(
        self, key: Key, owner: Owner, entry: Entry | None, outcome: Outcome, *, is_known: bool
    ) -> LeftBehind:
        """Look at what it left behind, and revoke the permissions of its pods there when they have rolled."""
        if entry is None or not isinstance(entry.access, BrokerAccess):
            await self._release(key, keep=[])
            return LeftBehind(as_before(owner))
        here, is_made = place_of(entry.access), outcome.has_topology
        places = previous_places(owner, here, is_made=is_made, is_known=is_known)
        looks = [await self._look(key, owner, entry, place) for place in places]
        if any(each.revocations for each, _ in looks) and await self._execution.has_rolled_over(
            owner, outcome
        ):
            looks = [await self._revoke(owner, each, vhost) for each, vhost in looks]
        left = [each for each, _ in looks if not each.is_nothing]
        await self._release(key, keep=[each.place for each in left])
        if left:
            self._world.queue.add_after(key, self._world.settings.drift_seconds)
        self._tell(owner, here, left)
        finding = drained_finding(owner, left) if isinstance(owner, OutboxListener) else None
        return LeftBehind(
            (finding,) if finding else (),
            {
                **({"virtual_host": here} if is_made else {}),
                "previous_virtual_hosts": tuple(each.place for each in left),
            },
        )

    async def forget(self, key: Key) -> None:
        """A resource is gone."""
        await self._release(key, keep=[])

    async def _look(
        self, key: Key, owner: Owner, entry: Entry, place: VirtualHost
    ) -> tuple[Remains, Vhost | None]:
        """What is left in a place, with the best credentials that are known for it."""
        seen: Snapshot | BrokerProblem | None = None
        vhost: Vhost | None = None
        visitors, used = self._visitors.setdefault(key, set()), set[str]()
        for number, access in enumerate(self._accesses(owner, entry, place)):
            visitor = _visitor(owner, place, number)
            visitors.add(visitor)
            used.add(visitor)
            vhost = await self._world.vhosts.use(visitor, access)
            seen = vhost.state
            if isinstance(seen, Snapshot):
                break
        # By credentials that may not be used any more nobody goes on looking.
        for visitor in {each for each in visitors if _is_for(each, place)} - used:
            visitors.discard(visitor)
            await self._world.vhosts.release(visitor)
        return remains(owner, place, seen), vhost

    def _accesses(self, owner: Owner, entry: Entry, place: VirtualHost) -> list[BrokerAccess]:
        """The current credentials if the broker is the same, and those that it was entered with before."""
        found: list[BrokerAccess] = []
        if isinstance(entry.access, BrokerAccess) and entry.access.management_url == place.management_url:
            found += [access] if (access := entry.access.at(place.name)) else []
        left = owner.metadata.namespace, VhostId(place.management_url, place.name)
        former = self._world.former_accesses.get(left)
        return [*found, former] if former is not None and former not in found else found

    async def _revoke(self, owner: Owner, left: Remains, vhost: Vhost | None) -> tuple[Remains, Vhost | None]:
        if vhost is None or not left.revocations:
            return left, vhost
        self._world.fence.check()
        problem = await vhost.perform(left.revocations)
        now = remains(owner, left.place, vhost.state)
        if problem is not None:
            words = f"the permissions of its pods' users stay there: {problem.message}"
            now = replace(now, problem=words)
        return now, vhost

    async def _release(self, key: Key, keep: list[VirtualHost]) -> None:
        """Let go of the virtual hosts in which nothing is left."""
        kept = {
            visitor for visitor in self._visitors.get(key, ()) if any(_is_for(visitor, at) for at in keep)
        }
        for visitor in self._visitors.pop(key, set()) - kept:
            await self._world.vhosts.release(visitor)
        if kept:
            self._visitors[key] = kept

    def _tell(self, owner: Owner, here: VirtualHost, left: list[Remains]) -> None:
        """Write an Event about a move, once."""
        status = owner.status
        for each in left:
            if each.place == status.virtual_host and each.place not in status.previous_virtual_hosts:
                about = Reference.to(kind_of(owner), owner.metadata)
                self._world.events.add(about, "Warning", "Moved", moved_message(owner, each.place, here))


def _visitor(owner: Owner, place: VirtualHost, number: int) -> str:
    return f"{owner.metadata.uid} before #{number} {place.management_url} {place.name}"


def _is_for(visitor: str, place: VirtualHost) -> bool:
    return visitor.endswith(f" {place.management_url} {place.name}")
