"""One of several replicas leads: whoever holds the Lease.

`kubernetes.aio.leaderelection` is not used: it goes by the wall clock, its calls may hang for minutes, it
does not wait for the work that it cancels, and it never gives a Lease back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outbox_core.logs import event
from outbox_operator.cluster import lease
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.errors import ClusterError, ConflictError, ForbiddenError, NotLeaderError
from outbox_operator.cluster.fence import Fence, uptime
from outbox_operator.cluster.kinds import LEASE, Manifest

_log = logging.getLogger("outbox.operator.leadership")


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a Lease holds, and how often it is looked after."""

    lease_seconds: float = 10.0
    """How long after its last renewal another replica may take it."""
    fence_seconds: float = 8.0
    """How long after the beginning of its last renewal its holder still writes."""
    renew_seconds: float = 3.0
    """How often the holder renews it."""
    retry_seconds: float = 1.0
    """How soon the holder tries again where a renewal fails."""
    look_seconds: float = 2.0
    """How often the others look at it."""
    call_seconds: float = 3.0
    """How long one call may take."""

    def __post_init__(self) -> None:
        if not self.renew_seconds + self.call_seconds < self.fence_seconds < self.lease_seconds:
            raise ValueError(
                "timing of the Lease: a renewal and one that fails must fit into fence_seconds, "
                "and that into lease_seconds"
            )


_TIMING = Timing()


class Leadership:
    """A replica's part in the election. It needs to get, create and update one Lease.

    Give it a `Cluster` of its own, without a fence: a renewal must not wait behind other calls.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, identity: str, timing: Timing = _TIMING
    ) -> None:
        """`identity` is this process and no other, one of before included."""
        self.fence = Fence(timing.fence_seconds)
        """What the leader's writes have to pass."""
        self._cluster = cluster
        self._namespace, self._name, self._identity = namespace, name, identity
        self._timing = timing
        self._lease: Manifest | None = None
        self._unchanged_since = 0.0
        self._loss: NotLeaderError | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may write."""
        return self.fence.is_open

    @property
    def lease_uid(self) -> str:
        """Tells the Lease from all others of any cluster; empty before it is held."""
        return lease.uid_of(self._lease)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, and work while it is held.

        Returns when the work does, and raises what it raises. A Lease that is lost cancels the work, waits
        for its end and raises a `NotLeaderError`. On the way out the Lease is given back.
        """
        await self._acquire()
        event(_log, logging.INFO, "leading", identity=self._identity)
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep())
                await work()
                keeping.cancel()
        except BaseExceptionGroup as failures:
            if self._loss is not None and failures.split(NotLeaderError)[1] is None:
                # What the work could not write then is no news.
                raise self._loss from None
            if len(failures.exceptions) > 1:
                raise
            raise failures.exceptions[0] from None
        finally:
            await self._release()

    async def _acquire(self) -> None:
        """Look until the Lease is free, then take it. A right that is lacking is an error."""
        while True:
            try:
                async with asyncio.timeout(self._timing.call_seconds):
                    if await self._look() and await self._take():
                        return
            except ForbiddenError:
                # Nobody would look into the log of a replica that stands by and seems well.
                raise
            except (ClusterError, TimeoutError) as error:
                _warn("lease not taken", error)
            await asyncio.sleep(self._timing.look_seconds)

    async def _look(self) -> bool:
        """Whether it can be had: it is not there, was given back, or was not renewed for its time."""
        found = await self._cluster.get(LEASE, self._namespace, self._name)
        if lease.version_of(found) != lease.version_of(self._lease):
            if lease.holder_of(found) not in (lease.holder_of(self._lease), self._identity):
                event(_log, logging.INFO, "standing by", holder=lease.holder_of(found))
            self._unchanged_since = uptime()
        self._lease = found
        if lease.holder_of(found) in ("", self._identity):
            return True
        # By this clock alone: the holder's may tell another time, so its renewTime means nothing here.
        return uptime() - self._unchanged_since >= lease.duration_of(found, self._timing.lease_seconds)

    async def _take(self) -> bool:
        """Whether it is ours now; another may have been faster."""
        began = uptime()
        before = self._lease or lease.created(self._namespace, self._name)
        write = self._cluster.replace if self._lease else self._cluster.create
        try:
            self._lease = await write(lease.taken(before, self._identity, self._timing.lease_seconds))
        except ConflictError:
            return False
        self.fence.open(began)
        return True

    async def _keep(self) -> None:
        """Renew it until that fails for too long, which is a `NotLeaderError`."""
        while True:
            await asyncio.sleep(self._timing.renew_seconds)
            while not await self._renew():
                if not self.fence.is_open:
                    raise self._lost("it could not be renewed in time")
                await asyncio.sleep(self._timing.retry_seconds)

    async def _renew(self) -> bool:
        began = uptime()
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                self._lease = await self._cluster.replace(lease.renewed(self._lease or {}))
        except ConflictError:
            await self._compare()
            return False
        except (ClusterError, TimeoutError) as error:
            _warn("lease not renewed", error)
            return False
        self.fence.open(began)
        return True

    async def _compare(self) -> None:
        """Somebody wrote it: we did and the answer was lost, a person did, or the next leader."""
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                found = await self._cluster.get(LEASE, self._namespace, self._name)
        except (ClusterError, TimeoutError) as error:
            _warn("lease not read", error)
            return
        if found is None:
            raise self._lost("it was deleted")
        if lease.holder_of(found) != self._identity:
            raise self._lost(f"{lease.holder_of(found) or 'nobody'} holds it")
        self._lease = found

    def _lost(self, why: str) -> NotLeaderError:
        self.fence.close()
        event(_log, logging.WARNING, "leading no more", cause=why)
        self._loss = NotLeaderError(f"Lease {self._namespace}/{self._name} is lost: {why}")
        return self._loss

    async def _release(self) -> None:
        """Give it back where it is ours: whoever stands by takes it at the next look."""
        was_leader = self.is_leader
        self.fence.close()
        if not was_leader or self._lease is None:
            return
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                await self._give_back(self._lease)
        except (ClusterError, TimeoutError) as error:
            _warn("lease not given back", error)
        else:
            event(_log, logging.INFO, "lease given back", identity=self._identity)

    async def _give_back(self, known: Manifest) -> None:
        try:
            await self._cluster.replace(lease.released(known))
        except ConflictError:
            # A renewal was on its way when the work ended, and arrived.
            found = await self._cluster.get(LEASE, self._namespace, self._name)
            if found is None or lease.holder_of(found) != self._identity:
                return
            await self._cluster.replace(lease.released(found))


def _warn(message: str, error: Exception) -> None:
    event(_log, logging.WARNING, message, cause=str(error) or type(error).__name__)
