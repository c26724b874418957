"""What the broker alone takes for the queues of many listeners: the same calls, and no Kubernetes around."""

import asyncio
import time
from urllib.parse import urlsplit

from bench.operator.site import Site
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import Action, MakeBinding, MakeQueue
from outbox_operator.broker.management import Management
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.planning.listener_plan import needed_topology
from outbox_operator.resources import OutboxListener, OutboxRelay

_AT_ONCE = 11
"""As many as the operator has under way."""
_NOTHING = Snapshot({}, {}, {}, None)


async def seconds_of(site: Site, names: list[str]) -> float:
    """Make what listeners of these names need: what they share first, then all the rest at once."""
    plans = [_actions(site, name) for name in names]
    slots = asyncio.Semaphore(_AT_ONCE)
    async with Management(_access(site), on_call=_ignored) as broker:

        async def make(actions: list[Action]) -> None:
            for kinds in (MakeQueue, MakeBinding):
                async with asyncio.TaskGroup() as group:
                    for action in actions:
                        if isinstance(action, kinds):
                            group.create_task(perform(action))

        async def perform(action: Action) -> None:
            async with slots:
                await broker.perform(action)

        began = time.monotonic()
        shared = set(plans[0]).intersection(*plans[1:])
        for action in (action for action in plans[0] if action in shared):
            await broker.perform(action)
        async with asyncio.TaskGroup() as group:
            for plan in plans:
                group.create_task(make([action for action in plan if action not in shared]))
        return time.monotonic() - began


def _actions(site: Site, name: str) -> tuple[Action, ...]:
    relay, listener = (
        OutboxRelay.model_validate(site.relay()),
        OutboxListener.model_validate(site.listener(name)),
    )
    return topology_actions(needed_topology(listener, relay), listener.metadata.path, _NOTHING).actions


def _access(site: Site) -> BrokerAccess:
    rabbitmq = site.ground.services.rabbitmq
    parts, management = urlsplit(rabbitmq.url), urlsplit(rabbitmq.management_url)
    return BrokerAccess(
        host=parts.hostname or "",
        port=parts.port or 0,
        tls=False,
        vhost=site.name,
        username=parts.username or "",
        password=parts.password or "",
        management_url=f"{management.scheme}://{management.hostname}:{management.port}",
    )


def _ignored(method: str, outcome: str) -> None:
    """Nobody counts."""
