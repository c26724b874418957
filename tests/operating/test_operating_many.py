"""Many resources: they cost the broker no more than few, come in any order, and do not disturb each other."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outbox_operator.rbac import RESOURCE_RIGHTS
from tests.operator.broker_bridge import BrokerBridge, broker_bridge
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.identity import identity
from tests.operator.counting import api_writes
from tests.operator.site import Site

WORKER: dict[str, Any] = {"handler": "shop.mail:send", "worker": {"image": "shop:1"}}
LOOKS = 4


def bridged(site: Site, bridge: BrokerBridge) -> Manifest:
    """A relay whose broker is on the other side of a bridge."""
    relay = site.relay()
    relay["spec"]["broker"]["managementUrl"] = bridge.url
    return relay


def apply(site: Site, *manifests: Manifest) -> None:
    """All in one go, in this order."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    done = site.api.kubectl("apply", "-f", "-", text=text)
    assert done.returncode == 0, done.stderr


async def told(site: Site, *manifests: Manifest) -> None:
    """Wait for the last that is written of each: the Event that it is ready."""
    names = {manifest["metadata"]["name"] for manifest in manifests}

    def are_told() -> bool:
        found = site.api.request("GET", f"/api/v1/namespaces/{site.namespace}/events")["items"]
        return names <= {each["involvedObject"]["name"] for each in found if each["reason"] == "Ready"}

    await site.until(are_told, "an Event of each that it is ready")


def written(site: Site) -> dict[str, str]:
    """The version of each object that an operator writes."""
    kinds = "outboxrelays,outboxlisteners,deployments,secrets,poddisruptionbudgets,events"
    done = site.api.kubectl("get", kinds, "-n", site.namespace, "-o", "json")
    assert done.returncode == 0, done.stderr
    return {
        f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"]
        for each in json.loads(done.stdout)["items"]
    }


@pytest.mark.parametrize("count", [3, 30])
async def test_the_calls_to_the_broker_do_not_grow_with_the_number_of_resources(
    site: Site, count: int
) -> None:
    listeners = [site.listener(f"mail-{number}") for number in range(count)]
    site.make_secrets()
    async with broker_bridge(site) as bridge, site.operating():
        apply(site, bridged(site, bridge), *listeners)
        for each in (site.relay(), *listeners):
            await site.until_condition(each)
        vhost = site.vhost
        look = {
            f"exchanges/{vhost}",
            f"queues/{vhost}",
            f"bindings/{vhost}",
            f"policies/{vhost}",
            f"operator-policies/{vhost}",
            "users",
            f"vhosts/{vhost}/permissions",
        }

        def looks() -> int:
            """How many there were; 0 in the middle of one."""
            counts = {bridge.count("GET", path) for path in look}
            return counts.pop() if len(counts) == 1 else 0

        await told(site, site.relay(), *listeners)
        first = await site.until(looks, "the end of a look")
        calls, versions = Counter(bridge.calls), written(site)
        last = await site.until(lambda: looks() >= first + LOOKS and looks(), f"{LOOKS} more looks")
        assert Counter(bridge.calls) - calls == Counter({("GET", path): last - first for path in look})
        assert written(site) == versions


async def test_forty_listeners_in_any_order_are_made_once_with_few_writes(site: Site) -> None:
    listeners = [site.listener(f"mail-{number}", retryDelays=["1s", "5m"]) for number in range(40)]
    random.shuffle(listeners)
    site.make_secrets()
    async with broker_bridge(site) as bridge, site.operating() as operator:
        apply(site, *listeners, bridged(site, bridge))
        for each in (*listeners, site.relay()):
            await site.until_condition(each)
        await told(site, site.relay(), *listeners)
        made = bridge.made()
        assert {path for path in made if ".delay_" in path} == {
            f"{kind}/{site.vhost}/outbox.delay_{seconds}s"
            for kind in ("exchanges", "queues")
            for seconds in (1, 300)
        }
        assert max(made.values()) == 1, made
        assert bridge.count("POST") == 40 * 2 + 2, (
            "a binding each of queue and dead-letter queue, and of tiers"
        )
        # With those of the relay.
        assert api_writes(operator) <= 3 * 40
    for listener in listeners:
        assert len(site.events(listener)) <= 2


async def test_a_resource_that_fails_holds_up_no_other(site: Site) -> None:
    broken = [site.listener(f"broken-{number}") for number in range(20)]
    for listener in broken:
        queue = f"{site.namespace}.{listener['metadata']['name']}"
        site.broker("PUT", f"queues/{{vhost}}/{queue}", {"durable": True})
    good, late = site.listener("good"), site.listener("late")
    site.make_secrets()
    # Fewer hands than there are resources that fail.
    async with site.operating(hands=2):
        apply(site, *broken, site.relay(), good)
        await site.until_condition(good)
        for listener in broken:
            await site.until_condition(listener, "TopologyReady", "False", "ArgumentsDiffer")
        site.api.create(late)
        await site.until_condition(late)


async def test_a_child_that_is_forbidden_holds_up_no_other_resource(site: Site, tmp_path: Path) -> None:
    rights = [right.manifest() for right in RESOURCE_RIGHTS if right.kind.kind != "PodDisruptionBudget"]
    who = identity(site.api, site.namespace, tmp_path, {site.namespace: rights})
    refused = site.listener("two-workers", **{**WORKER, "worker": {"image": "shop:1", "replicas": 2}})
    good = site.listener("one-worker", **WORKER)
    site.make_secrets()
    async with replace(site, identity=who).operating() as operator:
        for manifest in (site.relay(), refused, good):
            site.api.create(manifest)
        said = await site.until_condition(refused, "WorkloadAvailable", "False", "Forbidden")
        assert "poddisruptionbudgets" in said["message"]
        await site.until_condition(good, "WorkloadAvailable", "False", "Progressing")
        await site.until_condition(good, "TopologyReady")
        errors = operator.world.metrics.reconciles.labels("OutboxListener", "error")
        # It is tried again, later and later.
        await site.until(lambda: errors._value.get() >= 3, "three tries")
        assert site.find("Deployment", "one-worker-worker") is not None
