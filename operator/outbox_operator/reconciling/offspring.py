"""The children of resources, but for their Secrets: made, kept as they should be, and removed."""

from collections.abc import Iterable

from outbox_operator.children.applying import to_apply
from outbox_operator.children.family import Children
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_name, is_child, is_former_child
from outbox_operator.children.notes import children_of, with_notes
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.errors import ConflictError, RefusedError
from outbox_operator.cluster.kinds import ALL, DEPLOYMENT
from outbox_operator.cluster.store import Store

_KINDS = {kind.kind: kind for kind in ALL}


class Offspring:
    """Writes the children of resources."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._applied: dict[tuple[str, str, str], Manifest] = {}
        """What was last applied of the children that nobody watches, by their kind, namespace and name."""

    async def apply(self, owner: Owner, family: Children, live: Manifest | None) -> Manifest:
        """Make them as they should be, and those that should not be no more; the Deployment as it is then."""
        if live is not None and not is_child(live, owner):
            raise _taken(live)
        if live is not None:
            await self.remove(owner, family, live)
        # A Deployment that is there tells of the others before they are made, for whoever comes next.
        for manifest in _deployment_first(family.wanted) if live else family.wanted:
            if manifest["kind"] == DEPLOYMENT.kind:
                live = await self._apply_deployment(owner, with_notes(manifest, live, family), live)
            else:
                await self._apply_other(owner, manifest)
        assert live is not None  # noqa: S101 - a workload has a Deployment
        return live

    async def remove(self, owner: Owner, family: Children, live: Manifest) -> None:
        """Remove the children that are there and should not be; the Deployment last, which tells of them."""
        namespace, there = owner.metadata.namespace, children_of(live)
        for kind, name in family.unwanted:
            if kind in there:
                found = await self._cluster.get(_KINDS[kind], namespace, name)
                if found is not None and is_child(found, owner):
                    await self._cluster.delete(_KINDS[kind], namespace, name, found["metadata"]["uid"])
                self._applied.pop((kind, namespace, name), None)
        if (DEPLOYMENT.kind, child_name(owner)) in family.unwanted:
            uid = live["metadata"]["uid"]
            await self._cluster.delete(DEPLOYMENT, namespace, child_name(owner), uid)

    def forget(self, namespace: str, name: str) -> None:
        """A Deployment is gone, and what was made beside it may be."""
        for place in [place for place in self._applied if place[1:] == (namespace, name)]:
            del self._applied[place]

    async def _apply_deployment(self, owner: Owner, desired: Manifest, live: Manifest | None) -> Manifest:
        if live is None:
            live = await self._make_deployment(owner, desired)
        for step in to_apply(desired, live):
            live = await self._cluster.apply(step.manifest, force=step.force, manager=step.manager)
            self._store.put(DEPLOYMENT, live)
        return live

    async def _make_deployment(self, owner: Owner, desired: Manifest) -> Manifest:
        """Make one where none is watched, and take none from whoever has one of that name."""
        try:
            made = await self._cluster.apply(desired, force=False)
        except ConflictError:
            there = await self._cluster.get(DEPLOYMENT, owner.metadata.namespace, child_name(owner))
            if there is None or is_child(there, owner):
                raise
            raise _taken(there) from None
        self._store.put(DEPLOYMENT, made)
        return made

    async def _apply_other(self, owner: Owner, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        place = (manifest["kind"], metadata["namespace"], metadata["name"])
        if self._applied.get(place) == manifest:
            return
        if place not in self._applied:
            there = await self._cluster.get(_KINDS[manifest["kind"]], *place[1:])
            if there is not None and not (is_child(there, owner) or is_former_child(there, owner)):
                raise _taken(there, manifest["kind"])
        await self._cluster.apply(manifest, force=True)
        self._applied[place] = manifest


def _deployment_first(manifests: Iterable[Manifest]) -> list[Manifest]:
    return sorted(manifests, key=lambda manifest: bool(manifest["kind"] != DEPLOYMENT.kind))


def _taken(found: Manifest, kind: str = DEPLOYMENT.kind) -> RefusedError:
    return RefusedError(
        f"{kind} {found['metadata']['name']} exists and is not this resource's; "
        "delete it, or give the resource another name"
    )
