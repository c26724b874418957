"""The Secrets that the pods of resources enter with: what is in them, and that they are there."""

from collections.abc import Iterable

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, is_child
from outbox_operator.children.notes import retired_secrets, secret_of
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.errors import RefusedError
from outbox_operator.cluster.kinds import SECRET
from outbox_operator.planning.pod_credentials import PodCredentials, first_name, is_secret_of, lost, read
from outbox_operator.reconciling.key import Key


class PodSecrets:
    """Knows what the pods of each resource have, so that it is not read for every look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[Key, PodCredentials] = {}

    async def of(self, owner: Owner, deployment: Manifest | None) -> PodCredentials | None:
        """What its pods have, or are about to have; None where nothing was made for them yet."""
        known = self._known_of(owner)
        if known is not None:
            # Whatever the Deployment says: it is behind, or somebody has put another Secret into it.
            return known
        name = (secret_of(deployment) if deployment else None) or first_name(owner)
        found = await self._cluster.get(SECRET, owner.metadata.namespace, name)
        is_ours = found is not None and is_secret_of(owner, name) and is_child(found, owner)
        if found is not None and is_ours and (known := read(found)):
            self._known[Key.of(owner)] = known
            return known
        return lost(owner, name) if deployment else None

    async def make(self, owner: Owner, credentials: PodCredentials) -> None:
        """Make the Secret of these."""
        manifest = credentials.manifest(owner)
        try:
            await self._cluster.apply(manifest, force=True)
        except RefusedError:
            # It cannot be changed, and is from a look that ended before any pod knew of it.
            await self._cluster.delete(SECRET, owner.metadata.namespace, credentials.name, None)
            await self._cluster.apply(manifest, force=True)
        self._known[Key.of(owner)] = credentials

    async def mend(self, owner: Owner, credentials: PodCredentials) -> None:
        """Make it again where somebody has deleted it."""
        if await self._cluster.get(SECRET, owner.metadata.namespace, credentials.name) is None:
            await self.make(owner, credentials)

    async def remove_retired(self, owner: Owner, deployment: Manifest) -> None:
        """Remove those that only pods of before had."""
        used = secret_of(deployment)
        await self._remove(owner, [name for name in retired_secrets(deployment) if name != used])

    async def remove_all(self, owner: Owner, deployment: Manifest | None) -> None:
        """Remove all that are known of, and forget them."""
        names = {*retired_secrets(deployment), secret_of(deployment)} if deployment else set()
        known = self._known_of(owner)
        names |= {known.name} if known else set()
        await self._remove(owner, sorted(name for name in names if name))
        self.forget(Key.of(owner))

    def forget(self, key: Key) -> None:
        """A resource is gone, or has no pods any more."""
        self._known.pop(key, None)

    def _known_of(self, owner: Owner) -> PodCredentials | None:
        known = self._known.get(Key.of(owner))
        # A resource of the same name that came after it has nothing to do with it.
        return known if known and is_secret_of(owner, known.name) else None

    async def _remove(self, owner: Owner, names: Iterable[str]) -> None:
        for name in names:
            # A Deployment is not ours alone to write: what it names may be anybody's.
            if is_secret_of(owner, name):
                await self._cluster.delete(SECRET, owner.metadata.namespace, name, None)
