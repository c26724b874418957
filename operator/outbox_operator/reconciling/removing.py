"""Deleting a resource: the steps of a removal, one a look, until the finalizer can go."""

from outbox_operator.broker.vhosts import Vhost
from outbox_operator.children.names import Owner
from outbox_operator.planning.findings import deleting
from outbox_operator.planning.removal import Removal
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.finalizer import drop_finalizer
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.publication import publish, tell
from outbox_operator.reconciling.world import World

_LOOK_AGAIN_SECONDS = 5.0


class Removing:
    """Carries out the steps of removals."""

    def __init__(self, world: World, execution: Execution) -> None:
        self._world = world
        self._execution = execution

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
            if vhost is not None:
                await vhost.look()
            world.queue.add_after(key, _LOOK_AGAIN_SECONDS)
            return
        if removal.given_up is not None:
            await tell(world, owner, "Warning", "BrokerObjectsLeft", removal.given_up)
        await drop_finalizer(world, owner)
