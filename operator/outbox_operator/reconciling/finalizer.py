"""Our mark on a resource whose deletion has to wait for the broker. Pure but for the write."""

from contextlib import suppress

from outbox_operator.children.names import Owner
from outbox_operator.cluster.errors import NotFoundError
from outbox_operator.cluster.kinds import Kind
from outbox_operator.planning.removal import FINALIZER
from outbox_operator.reconciling.publication import kind_of
from outbox_operator.reconciling.world import World
from outbox_operator.resources.metadata import Metadata


async def keep_finalizer(world: World, owner: Owner) -> None:
    """Have it on a resource whose policy needs it, and on no other."""
    is_wanted = owner.spec.deletion_policy != "Retain"
    if is_wanted != (FINALIZER in owner.metadata.finalizers):
        await _write(world, kind_of(owner), owner.metadata, is_wanted=is_wanted)


async def drop_finalizer(world: World, kind: Kind, metadata: Metadata) -> None:
    """Let it go; it may be gone already, and nobody has heard of it yet."""
    if FINALIZER in metadata.finalizers:
        with suppress(NotFoundError):
            await _write(world, kind, metadata, is_wanted=False)


async def _write(world: World, kind: Kind, metadata: Metadata, *, is_wanted: bool) -> None:
    others = [name for name in metadata.finalizers if name != FINALIZER]
    patch = {
        "metadata": {
            "finalizers": [*others, FINALIZER] if is_wanted else others,
            # A patch replaces the list: not one that somebody else has changed meanwhile.
            "resourceVersion": metadata.resource_version,
        }
    }
    written = await world.cluster.patch(kind, metadata.namespace, metadata.name, patch)
    if is_wanted:
        world.store.put(kind, written)
