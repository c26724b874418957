"""`python -m outbox_worker shop.listeners`: the listeners of modules, with settings from the environment.

`OUTBOX_BROKER_URL` is needed, and `OUTBOX_DATABASE_URL` by listeners with exactly_once or deduplicate; each
field of `Settings` may be given as `OUTBOX_…`.

With `OUTBOX_QUEUE` it runs one listener, on that queue whatever the code says, and `OUTBOX_RETRY_DELAYS` and
`OUTBOX_ORDERED` win over the code as well: a container does what its OutboxListener asks for. Without it the
delays are for listeners that name none. They are seconds, as 1,10,60; an empty text is no retries.

`OUTBOX_PROBE_PORT` (8080) serves /livez, /readyz and /metrics, on `OUTBOX_PROBE_HOST` (all addresses).
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import asyncpg

from outbox_core import logs, loop
from outbox_core.broker_errors import BrokerError
from outbox_core.database import DatabaseError
from outbox_core.environment import (
    SettingError,
    leaves,
    log_format,
    needed_url,
    one_line,
    probe_host,
    probe_port,
    variable_of,
)
from outbox_core.probes import Probes, ProbesError
from outbox_core.signals import Shutdown
from outbox_worker.errors import WorkerError
from outbox_worker.loading import load, overridden
from outbox_worker.settings import Override, Settings, from_environment, override_from_environment
from outbox_worker.worker import Worker

_log = logging.getLogger("outbox.worker")

_CANNOT_RUN = (
    SettingError,
    WorkerError,
    DatabaseError,
    BrokerError,
    ProbesError,
    ValueError,
    # What Postgres says of the inbox: refused to create, or not ours to touch.
    asyncpg.InsufficientPrivilegeError,
)
"""What a person has to mend: one line of log says it better than a traceback."""


def main(environment: Mapping[str, str] = os.environ, arguments: Sequence[str] | None = None) -> int:
    targets = _targets(arguments)
    logs.configure()
    problems: list[BaseException] = []
    try:
        logs.configure(environment.get("OUTBOX_LOG_LEVEL", "INFO"), log_format(environment))
        loop.run(_work(targets, environment))
    except* _CANNOT_RUN as group:
        problems = leaves(group)
    # Several listeners may have met the same one.
    for line in dict.fromkeys(map(one_line, problems)):
        _log.error("%s", line)
    return 1 if problems else 0


async def _work(targets: Sequence[str], environment: Mapping[str, str]) -> None:
    # As with `python -m`, but also for an installed script: what is developed is where one stands.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    listeners = load(targets)
    if override := override_from_environment(environment):
        listeners = [overridden(listeners, override)]
    worker = Worker(
        rmq_connection_url=needed_url(environment, "OUTBOX_BROKER_URL"),
        listeners=listeners,
        db_engine_url=environment.get("OUTBOX_DATABASE_URL") or None,
        settings=from_environment(environment),
    )
    probes = Probes(probe_port(environment), probe_host(environment))
    # Before anybody can ask: without a check it would be ready.
    probes.readiness.add("worker", worker.unready_reason)
    with probes, Shutdown() as shutdown:
        beating = asyncio.create_task(probes.liveness.run())
        try:
            await worker.run_until(shutdown.requested)
        finally:
            beating.cancel()


def _targets(arguments: Sequence[str] | None) -> list[str]:
    names = dict.fromkeys(field.name for field in (*fields(Settings), *fields(Override)))
    variables = "\n".join(f"  {variable_of(name)}" for name in names)
    parser = argparse.ArgumentParser(
        prog="outbox_worker",
        description=(__doc__ or "").replace("`", ""),
        epilog=f"environment:\n  OUTBOX_BROKER_URL\n  OUTBOX_DATABASE_URL\n  OUTBOX_PROBE_PORT\n"
        f"  OUTBOX_PROBE_HOST\n{variables}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("outbox-operator"))
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="MODULE[:NAME]",
        help="a module, for all of its listeners, or one of them or a list of them by its name",
    )
    targets: list[str] = parser.parse_args(arguments).targets
    return targets


if __name__ == "__main__":
    sys.exit(main())
