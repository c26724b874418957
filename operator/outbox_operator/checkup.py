"""`python -m outbox_operator.checkup`: whether an operator that was installed works. `helm test` runs it.

It has the operator's settings and its rights: the custom resources can be listed where they are watched, and
somebody leads, which shows by a Lease that is renewed.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping

from outbox_core import logs, loop
from outbox_core.environment import SettingError
from outbox_core.logs import event
from outbox_operator.cluster import lease
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ClusterError, NotFoundError
from outbox_operator.cluster.kinds import LEASE, LISTENER, RELAY
from outbox_operator.settings import Settings, from_environment

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 1.0

_log = logging.getLogger("outbox.operator.checkup")


class CheckupError(Exception):
    """Something is not as it should be."""


def main(environment: Mapping[str, str] = os.environ) -> int:
    logs.configure()
    try:
        loop.run(_check(from_environment(environment), environment))
    except (CheckupError, ClusterError, SettingError) as error:
        _log.error("%s", error)
        return 1
    return 0


async def _check(settings: Settings, environment: Mapping[str, str]) -> None:
    connection = await Connection.open(environment)
    try:
        cluster = Cluster(connection)
        await see_resources(cluster, settings)
        await see_leader(cluster, settings)
    finally:
        await connection.close()


async def see_resources(cluster: Cluster, settings: Settings) -> None:
    """List the custom resources wherever the operator does."""
    for kind in (RELAY, LISTENER):
        for namespace in settings.namespaces or (None,):
            try:
                found = await cluster.list(kind, namespace, metadata_only=True)
            except NotFoundError as error:
                raise CheckupError(
                    f"{kind}s are not known to this cluster; install the chart with crds.install=true"
                ) from error
            where = namespace or "all namespaces"
            event(_log, logging.INFO, "resources are served", kind=str(kind), where=where, count=len(found))


async def see_leader(
    cluster: Cluster, settings: Settings, patience_seconds: float = _PATIENCE_SECONDS
) -> None:
    """Wait until the Lease is renewed by whoever holds it."""
    where = f"Lease {settings.lease_namespace}/{settings.lease_name}"
    seen: dict[str, str] = {}
    try:
        async with asyncio.timeout(patience_seconds):
            while True:
                found = await cluster.get(LEASE, settings.lease_namespace, settings.lease_name)
                holder, version = lease.holder_of(found), lease.version_of(found)
                if holder and seen.setdefault(holder, version) != version:
                    event(_log, logging.INFO, "an operator leads", holder=holder)
                    return
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise CheckupError(
            f"{where} was not renewed for {patience_seconds:g} s: no operator leads; look at the pods' logs"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
