"""`python -m outbox_operator`: the operator, with settings from the environment.

The cluster is the one of the pod's service account, or of KUBECONFIG. Each field of `Settings` may be given
as `OUTBOX_…`. `OUTBOX_PROBE_PORT` (8080) serves /livez, /readyz and /metrics, on `OUTBOX_PROBE_HOST` (all
addresses).
"""

import argparse
import asyncio
import gc
import logging
import os
import socket
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.metadata import version

from outbox_core import logs, loop
from outbox_core.environment import (
    SettingError,
    leaves,
    log_format,
    one_line,
    probe_host,
    probe_port,
    variable_of,
)
from outbox_core.probes import Probes, ProbesError
from outbox_core.signals import Shutdown
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ClusterError
from outbox_operator.cluster.leadership import Leadership
from outbox_operator.metrics import Metrics
from outbox_operator.operator import Operator
from outbox_operator.settings import Settings, from_environment

_GARBAGE = (20_000, 10, 5)
"""How much may pile up between two searches for garbage. With hundreds of resources, the default searches so
often that a sixth of the CPU goes into it."""

_log = logging.getLogger("outbox.operator")


def main(environment: Mapping[str, str] = os.environ, arguments: Sequence[str] | None = None) -> int:
    _read(arguments)
    gc.set_threshold(*_GARBAGE)
    logs.configure()
    problems: list[BaseException] = []
    try:
        logs.configure(environment.get("OUTBOX_LOG_LEVEL", "INFO"), log_format(environment))
        loop.run(_operate(from_environment(environment), probe_port(environment), environment))
    except* (SettingError, ClusterError, ProbesError) as group:
        problems = leaves(group)
    for line in dict.fromkeys(map(one_line, problems)):
        _log.error("%s", line)
    return 1 if problems else 0


async def _operate(settings: Settings, port: int, environment: Mapping[str, str]) -> None:
    metrics = Metrics()
    connection = await Connection.open(environment)
    probes = Probes(port, probe_host(environment))
    try:
        with probes, Shutdown() as shutdown:
            beating = asyncio.create_task(probes.liveness.run())
            try:
                await _lead(settings, connection, metrics, probes, shutdown)
            finally:
                beating.cancel()
    finally:
        await connection.close()


async def _lead(
    settings: Settings, connection: Connection, metrics: Metrics, probes: Probes, shutdown: Shutdown
) -> None:
    """Stand by, then lead, until asked to stop."""
    election = Cluster(connection, on_call=metrics.count_api_call)
    leadership = Leadership(
        election, settings.lease_namespace, settings.lease_name, settings.identity or _identity()
    )
    metrics.leader.set_function(lambda: float(leadership.is_leader))

    async def work() -> None:
        chosen = replace(settings, installation=settings.installation or leadership.lease_uid)
        operator = Operator(chosen, connection, leadership.fence, metrics)
        probes.liveness.add("watches", operator.watch_check.problem)
        await operator.run()

    leading = asyncio.create_task(leadership.lead(work))
    asked = asyncio.create_task(shutdown.requested.wait())
    try:
        await asyncio.wait([leading, asked], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        leading.cancel()
        await asyncio.wait([leading])
    if not leading.cancelled() and (error := leading.exception()):
        raise error


def _identity() -> str:
    """This process and no other, one of before on this host included."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


def _read(arguments: Sequence[str] | None) -> None:
    variables = "\n".join(f"  {variable_of(field.name)}" for field in fields(Settings))
    parser = argparse.ArgumentParser(
        prog="outbox_operator",
        description=(__doc__ or "").replace("`", ""),
        epilog=f"environment:\n  KUBECONFIG\n  OUTBOX_PROBE_PORT\n  OUTBOX_PROBE_HOST\n{variables}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("outbox-operator"))
    parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
