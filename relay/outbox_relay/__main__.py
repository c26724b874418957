"""`python -m outbox_relay`: a relay whose settings come from the environment, as in a container.

`OUTBOX_DATABASE_URL` and `OUTBOX_BROKER_URL` are needed; each field of `Settings` may be given as `OUTBOX_…`.
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
from outbox_relay.errors import RelayError
from outbox_relay.relay import MessageRelay
from outbox_relay.settings import Settings, from_environment

_log = logging.getLogger("outbox.relay")

_CANNOT_RUN = (
    SettingError,
    RelayError,
    DatabaseError,
    BrokerError,
    ProbesError,
    ValueError,
    # What Postgres says of a table: refused to create, taken away, or not ours to touch.
    asyncpg.RaiseError,
    asyncpg.UndefinedTableError,
    asyncpg.InsufficientPrivilegeError,
)
"""What a person has to mend: one line of log says it better than a traceback."""


def main(environment: Mapping[str, str] = os.environ, arguments: Sequence[str] | None = None) -> int:
    _read(arguments)
    logs.configure()
    problems: list[BaseException] = []
    try:
        logs.configure(environment.get("OUTBOX_LOG_LEVEL", "INFO"), log_format(environment))
        loop.run(_relay(environment))
    except* _CANNOT_RUN as group:
        problems = leaves(group)
    # Each lane may have met the same one.
    for line in dict.fromkeys(map(_line, problems)):
        _log.error("%s", line)
    return 1 if problems else 0


async def _relay(environment: Mapping[str, str]) -> None:
    relay = MessageRelay(
        db_engine_url=needed_url(environment, "OUTBOX_DATABASE_URL"),
        rmq_connection_url=needed_url(environment, "OUTBOX_BROKER_URL"),
        settings=from_environment(environment),
    )
    probes = Probes(probe_port(environment), probe_host(environment))
    # Before anybody can ask: without a check it would be ready.
    probes.readiness.add("relay", relay.unready_reason)
    with probes, Shutdown() as shutdown:
        beating = asyncio.create_task(probes.liveness.run())
        try:
            await relay.run_until(shutdown.requested)
        finally:
            beating.cancel()


def _line(problem: BaseException) -> str:
    text = one_line(problem)
    if isinstance(problem, asyncpg.InsufficientPrivilegeError):
        text += "; grant the relay's user SELECT, UPDATE and DELETE on its table"
    return text


def _read(arguments: Sequence[str] | None) -> None:
    variables = "\n".join(f"  {variable_of(field.name)}" for field in fields(Settings))
    parser = argparse.ArgumentParser(
        prog="outbox_relay",
        description=(__doc__ or "").replace("`", ""),
        epilog=f"environment:\n  OUTBOX_DATABASE_URL\n  OUTBOX_BROKER_URL\n  OUTBOX_PROBE_PORT\n"
        f"  OUTBOX_PROBE_HOST\n{variables}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("outbox-operator"))
    parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
