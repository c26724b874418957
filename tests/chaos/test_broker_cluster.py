"""Three brokers that form a cluster, and whose nodes go one after the other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outbox_cli.local import Services
from tests.chaos.conftest import MakeWorkplace, Measure, workplaces
from tests.chaos.private import world_on
from tests.chaos.standby import with_ports
from tests.chaos.test_failover import PREFETCH, RELAY, RELAYED_TWICE, more_sent
from tests.integration.administrator import management
from tests.integration.broker_cluster import BrokerCluster, broker_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with broker_cluster(nodes=3) as started:
        yield started


@pytest.fixture
async def clustered_workplace(
    services: Services, cluster: BrokerCluster, tmp_path: Path
) -> AsyncIterator[MakeWorkplace]:
    """Makes workplaces on the cluster; what the test itself asks and consumes goes to the node that stays."""
    both = Services(services.found_postgres, cluster.services.found_rabbitmq)
    async with world_on(both, tmp_path) as world, workplaces(world) as make:
        yield make


async def test_nodes_of_a_cluster_go_one_after_the_other_without_a_loss(
    cluster: BrokerCluster, clustered_workplace: MakeWorkplace, measured: Measure
) -> None:
    place = await clustered_workplace("once", relayed_twice=3 * RELAYED_TWICE)
    ports = [urlsplit(node.url).port or 0 for node in cluster.joined]
    url = with_ports(place.world.rabbitmq_url, *ports)
    worker = await place.start(prefetch_count=PREFETCH, broker_url=url)
    relay = await place.world.start_relay({"OUTBOX_BROKER_URL": url}, **RELAY)
    listed = management(cluster.services, "GET", f"queues/{place.world.vhost}")
    assert {len(queue["members"]) for queue in listed if queue["type"] == "quorum"} == {3}
    async with place.world.load(limit=3000, pause_seconds=0.05):
        await place.more_handled(50)
        for node in cluster.joined:
            await asyncio.to_thread(node.kill)
            sent, handled = await asyncio.gather(more_sent(place), place.more_handled())
            measured("seconds from the loss of a node to the next message sent", sent)
            measured("seconds from the loss of a node to the next message handled", handled)
            await place.more_handled(50)
            await asyncio.to_thread(node.start)
            await asyncio.gather(relay.ready(), worker.ready())
    await place.close_the_books()
    measured("messages", len(place.world.ledger.committed))
