"""A listener without workers, for a consumer in another language: a Go program with the ordinary client."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.images import scratch_image
from tests.cluster.programs import go_program
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, Manifest, rows, until
from tests.e2e.shop import MANIFESTS, Shop, open_shop

COUNT = 100
_IMAGE = "outbox.dev/consumer:local"
_LISTENER = {
    "apiVersion": "outbox.dev/v1alpha1",
    "kind": "OutboxListener",
    "metadata": {"name": "audit"},
    "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["order.placed"]},
}


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, installation: Installation) -> Iterator[Shop]:
    """A shop without workers."""
    with open_shop(kubectl, "services.yaml", "secrets.yaml", "relay.yaml") as opened:
        yield opened


@pytest.fixture(scope="module")
def consumer(
    cluster: Cluster, progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The image of the program."""
    program = go_program(Path(__file__).parent / "consumer", os.environ, progress)
    cluster.load(scratch_image(_IMAGE, program, tmp_path_factory.mktemp("consumer") / "consumer.tar"))
    return _IMAGE


def job(image: str, queue: str) -> Manifest:
    """The shop's own Job with another program, and with the credentials that the relay's broker has."""
    made: Manifest = yaml.safe_load((MANIFESTS / "application.yaml").read_text())
    made["metadata"]["name"] = "consumer"
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["command"], container["args"]
    container["image"] = image
    container["env"] = [
        {"name": "BROKER_URL", "valueFrom": {"secretKeyRef": {"name": "shop-rabbitmq", "key": "uri"}}},
        {"name": "QUEUE", "value": queue},
        {"name": "COUNT", "value": str(COUNT)},
    ]
    return made


def test_a_consumer_in_another_language_takes_what_the_operator_made_a_queue_for(
    shop: Shop, consumer: str
) -> None:
    shop("apply", "--filename=-", text=json.dumps(_LISTENER))
    shop.wait_until_ready("obl/audit")
    status = shop.get("obl/audit")["status"]
    assert "WorkloadAvailable" not in {condition["type"] for condition in status["conditions"]}
    [cells] = rows(shop("get", "obl/audit")).values()
    assert (cells["READY"], cells["QUEUE"], cells["WORKERS"]) == ("True", shop.queue("audit"), "")

    # The relay parks what nobody listens to, such as the reminders here.
    shop.place_orders(1, 2 * COUNT)
    queue = status["queue"]
    until("all messages are in the queue", lambda: shop.queues()[queue] == COUNT)
    shop("apply", "--filename=-", text=json.dumps(job(consumer, queue)))
    taken = [line.split() for line in shop.wait_for_job("consumer").splitlines()]

    assert len({message_id for message_id, *_ in taken}) == COUNT
    assert {(key, kind) for _, key, kind, _ in taken} == {("order.placed", "application/json")}
    assert sorted(int(order) for *_, order in taken) == sorted(shop.orders())
    until("the queue is empty", lambda: shop.queues()[queue] == 0)
    assert shop.queues()[status["deadLetterQueue"]] == 0
