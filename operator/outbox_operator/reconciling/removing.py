"""Deleting a resource: the steps of a removal, one a look, until the finalizer can go."""

import time
from datetime import timedelta

from outbox_operator.broker.vhosts import Vhost
from outbox_operator.children.names import Owner
from outbox_operator.planning.findings import deleting
from outbox_operator.planning.moves import left_words
from outbox_operator.planning.removal import Patience, Removal
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.finalizer import drop_finalizer
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.publication import kind_of, publish, tell
from outbox_operator.reconciling.world import World

_FRESH_SECONDS = 1.0


class Removing:
    """Carries out the steps of removals."""

    def __init__(self, world: World, execution: Execution) -> None:
        self._world = world
        self._execution = execution
        self._looked: tuple[Vhost, float] | None = None
        self._told: dict[Key, str] = {}
        """The uids of those of which it was told that something was left."""
        self.patience = Patience(
            broker=timedelta(seconds=world.settings.give_up_seconds),
            counts=timedelta(seconds=world.settings.count_seconds),
        )

    async def look(self, vhost: Vhost) -> None:
        """See that what is known of a virtual host is not old; once for many that are deleted together."""
        now = time.monotonic()
        if self._looked is None or self._looked[0] is not vhost or now - self._looked[1] >= _FRESH_SECONDS:
            self._looked = vhost, now
            await vhost.look()

    async def carry_out(self, key: Key, owner: Owner, removal: Removal, vhost: Vhost | None) -> None:
        """Do what the step says, and come back where it is not the last."""
        world = self._world
        world.fence.check()
        if removal.stops_pods:
            await self._execution.stop_pods(owner)
        problem = await vhost.perform(removal.actions) if vhost and removal.actions else None
        waiting_for = problem.message if problem else removal.waiting_for
        if waiting_for is not None:
            await publish(world, owner, (deleting(waiting_for),))
            world.queue.add_after(key, removal.look_again_after.total_seconds())
            return
        left = [words for words in (removal.given_up, left_words(owner)) if words]
        if left and self._told.get(key) != owner.metadata.uid:
            self._told[key] = owner.metadata.uid
            await tell(world, owner, "Warning", "BrokerObjectsLeft", ". ".join(left))
        await drop_finalizer(world, kind_of(owner), owner.metadata)

    def forget(self, key: Key) -> None:
        """A resource is gone."""
        self._told.pop(key, None)
