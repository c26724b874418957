"""A cluster of brokers of which a node is away: a queue that is not listed is neither gone nor empty."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from outbox.topology import Subscription, topology
from outbox_cli.local import Services
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import RemoveQueue
from outbox_operator.broker.management import Management, ManagementError
from tests.integration.administrator import rabbitmqctl
from tests.integration.broker_cluster import BrokerCluster, JoinedNode, broker_cluster
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import broker_writes, several_looks
from tests.operator.site import Site


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Of three nodes, so that those that stay are a majority."""
    with broker_cluster(nodes=3) as started:
        yield started


@pytest.fixture
def second(cluster: BrokerCluster) -> JoinedNode:
    """A node that alone has the queues that are made on it."""
    node = cluster.joined[0]
    rabbitmqctl(node, "eval", "application:set_env(rabbit, quorum_cluster_size, 1).")
    return node


@pytest.fixture
def clustered(site: Site, cluster: BrokerCluster) -> Site:
    """The site with a virtual host of the cluster, reached by the node that stays."""
    services = Services(site.services.found_postgres, cluster.services.found_rabbitmq)
    vhost = f"test_{uuid4().hex}"
    url = urlunsplit(urlsplit(services.rabbitmq.url)._replace(path=f"/{vhost}"))
    there = replace(site, services=services, rabbitmq_url=url)
    there.broker("PUT", "vhosts/{vhost}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    there.broker("PUT", f"permissions/{{vhost}}/{urlsplit(url).username}", everything)
    return there


def make_queues_on(site: Site, node: str, *, ordered: bool = False) -> str:
    """The listener's queue and its dead-letter queue, on one node; the queue's name."""
    name = f"{site.namespace}.mail"
    wanted = topology("outbox", [Subscription(name, ("user.created",), (timedelta(seconds=1),), ordered)])
    for queue in wanted.queues:
        if queue.name.startswith(name):
            body = {"durable": True, "arguments": queue.arguments, "node": node}
            site.broker("PUT", f"queues/{{vhost}}/{queue.name}", body)
    return name


def publish(site: Site, queue: str) -> None:
    properties = {"delivery_mode": 2}
    body = {"properties": properties, "routing_key": queue, "payload": "{}", "payload_encoding": "string"}
    assert site.broker("POST", "exchanges/{vhost}/amq.default/publish", body)["routed"]


def is_known(site: Site, queue: str) -> bool:
    """Whether the broker has such a queue, listed or not."""
    return any(each["destination"] == queue for each in site.broker("GET", "bindings/{vhost}"))


async def start(site: Site, listener: Manifest) -> None:
    site.make_secrets()
    for each in (site.relay(), listener):
        site.api.create(each)
    await site.until_condition(listener)


async def test_a_queue_without_a_leader_is_not_taken_for_missing(clustered: Site, second: JoinedNode) -> None:
    site, listener = clustered, clustered.listener(retryDelays=[])
    queue = make_queues_on(site, second.name)
    publish(site, queue)
    async with site.operating() as operator:
        await start(site, listener)
        await site.until(lambda: site.status(listener).get("backlog") == 1, "a status with the message")
        second.stop()
        try:
            assert queue not in site.queues()
            assert is_known(site, queue)
            said = await site.until_condition(listener, "TopologyReady", "Unknown", "QueueUnavailable")
            assert f'queue "{queue}' in said["message"]
            before = broker_writes(operator)
            await several_looks(site, operator)
            assert broker_writes(operator) == before
            assert site.status(listener)["backlog"] == 1
        finally:
            second.start()
        await site.until_condition(listener)
        await site.until(lambda: site.messages(queue) == 1, "the message")


async def test_a_queue_without_a_leader_is_not_deleted_as_empty(clustered: Site, second: JoinedNode) -> None:
    """Nobody can look into the queue of an ordered listener, and RabbitMQ deletes one without a leader."""
    site = clustered
    listener = site.listener(ordered=True, deletionPolicy="DeleteIfEmpty")
    queue = make_queues_on(site, second.name, ordered=True)
    publish(site, f"{queue}.dlq")
    async with site.operating() as operator:
        await start(site, listener)
        second.stop()
        try:
            await site.until_condition(listener, "TopologyReady", "Unknown", "QueueUnavailable")
            site.delete(listener)
            said = await site.until_condition(listener, "TopologyReady", "False", "Deleting")
            await site.until(
                lambda: "does not tell how many" in site.condition(listener, "TopologyReady")["message"],
                f"that the count is not known: {said}",
            )
            await several_looks(site, operator)
            assert not site.is_gone(listener)
            assert is_known(site, queue)
            assert is_known(site, f"{queue}.dlq")
        finally:
            second.start()
        await site.until(
            lambda: "has 1 message" in site.condition(listener, "TopologyReady")["message"], "its dead letter"
        )
        site.broker("DELETE", f"queues/{{vhost}}/{queue}.dlq/contents")
        await site.until(lambda: site.is_gone(listener), "the end of the listener")
    assert not is_known(site, queue)


async def test_a_count_that_nobody_knows_keeps_a_queue(clustered: Site, second: JoinedNode) -> None:
    """The node may go between the listing and the removal."""
    site, queue = clustered, make_queues_on(clustered, second.name, ordered=True)
    url = urlsplit(site.rabbitmq_url)
    access = BrokerAccess(
        host="127.0.0.1",
        port=url.port or 0,
        tls=False,
        vhost=site.vhost,
        username=url.username or "",
        password=url.password or "",
        management_url=site.management_url,
    )
    async with Management(access, on_call=lambda *_: None) as broker:
        second.stop()
        try:
            assert queue in (await broker.snapshot()).hidden_queues
            with pytest.raises(ManagementError, match="does not tell how many messages"):
                await broker.perform(RemoveQueue(queue, if_empty=True))
            assert is_known(site, queue)
        finally:
            second.start()
        await broker.perform(RemoveQueue(queue, if_empty=True))
    assert not is_known(site, queue)
