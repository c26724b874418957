"""What is changed by hand on the broker is put right, and what is somebody else's is left alone."""

import asyncio
from base64 import b64decode
from typing import Any

import aio_pika
import pytest

from outbox_operator.broker.snapshot import OWNER
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import samples
from tests.operator.site import DEADLINE_SECONDS, POLL_SECONDS, Site

WORKER: dict[str, Any] = {"handler": "shop.mail:send", "worker": {"image": "shop:1"}}


def picture(site: Site) -> dict[str, Any]:
    """Everything in the virtual host, with whose bindings they are."""
    exchanges = site.broker("GET", "exchanges/{vhost}")
    bindings = site.broker("GET", "bindings/{vhost}")
    return {
        "exchanges": {each["name"]: each["type"] for each in exchanges},
        "queues": {name: queue["arguments"] for name, queue in site.queues().items()},
        "bindings": sorted(
            (each["source"], each["destination"], each["routing_key"], each["arguments"].get(OWNER, ""))
            for each in bindings
        ),
    }


async def settled(site: Site, *manifests: Manifest) -> None:
    site.make_secrets()
    for manifest in manifests:
        site.api.create(manifest)
    for manifest in manifests:
        await site.until_condition(manifest, "TopologyReady")


@pytest.mark.parametrize(
    ("path", "repairs"),
    [
        ("queues/{vhost}/{queue}", {"MakeQueue", "MakeBinding"}),
        ("queues/{vhost}/{queue}.dlq", {"MakeQueue", "MakeBinding"}),
        ("exchanges/{vhost}/outbox", {"MakeExchange", "MakeBinding"}),
        ("exchanges/{vhost}/outbox.dlx", {"MakeExchange", "MakeBinding"}),
        ("queues/{vhost}/outbox.delay_10s", {"MakeQueue", "MakeBinding"}),
        ("exchanges/{vhost}/outbox.delay_10s", {"MakeExchange", "MakeBinding"}),
        ("bindings/{vhost}/e/outbox/q/{queue}/{binding}", {"MakeBinding"}),
        ("bindings/{vhost}/e/outbox.dlx/q/{queue}.dlq/{binding}", {"MakeBinding"}),
        ("bindings/{vhost}/e/outbox.delay_10s/q/outbox.delay_10s/{binding}", {"MakeBinding"}),
    ],
)
async def test_what_is_removed_by_hand_is_made_again(site: Site, path: str, repairs: set[str]) -> None:
    queue = f"{site.namespace}.mail"
    async with site.operating() as operator:
        await settled(site, site.relay(), site.listener())
        site.broker("PUT", "queues/{vhost}/theirs", {"durable": True})
        site.broker("PUT", "exchanges/{vhost}/their-exchange", {"type": "headers"})
        site.broker("POST", "bindings/{vhost}/e/their-exchange/q/theirs", {"routing_key": "x"})
        before = picture(site)
        collection = path.replace("{queue}", queue).removesuffix("/{binding}")
        if path.endswith("{binding}"):
            [binding] = site.broker("GET", collection)
            collection += f"/{binding['properties_key']}"
        site.broker("DELETE", collection)
        assert picture(site) != before
        await site.until(lambda: picture(site) == before, "everything as it was")
        await site.until_condition(site.listener())
        counted = samples(operator.world.metrics.drift_repairs)
        assert {labels["action"] for labels, count in counted if count} == repairs


async def test_what_others_have_in_the_vhost_is_left_alone(site: Site) -> None:
    """Also where it is called almost as ours is."""
    theirs = ["theirs", "outbox.delay_soon", "outboxes", f"{site.namespace}.mail.old", "outbox.delay_99s"]
    async with site.operating(tier_grace_seconds=0) as operator:
        await settled(site, site.relay(), site.listener())
        for name in theirs:
            site.broker("PUT", f"queues/{{vhost}}/{name}", {"durable": True})
        before = picture(site)
        # A change of ours shows that it has looked since.
        site.edit(site.listener(), retryDelays=["10s"])
        await site.until(lambda: "outbox.delay_1s" not in site.queues(), "the end of an unused tier")
        await site.until(lambda: operator.world.queue.is_idle, "an idle operator")
        after = picture(site)
    assert set(theirs) <= set(after["queues"])
    gone = {f"outbox.delay_{seconds}s" for seconds in (1, 60, 300)}
    assert set(before["queues"]) - set(after["queues"]) == gone
    assert not list(samples(operator.world.metrics.drift_repairs))


async def test_a_user_that_is_removed_or_changed_by_hand_is_put_right(site: Site) -> None:
    relay, listener = site.relay(replicas=1), site.listener(**WORKER)
    async with site.operating() as operator:
        await settled(site, relay, listener)
        await site.until(lambda: len(site.broker_users()) == 2, "a user for each")
        before = {name: rights(site, name) for name in site.broker_users()}
        for name in before:
            site.broker("DELETE", f"users/{name}")
        await site.until(lambda: site.broker_users() == set(before), "the users again")
        await site.until(lambda: {n: rights(site, n) for n in before} == before, "their permissions again")
        for name in before:
            await until_pods_can_enter(site, name)
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        for name in before:
            site.broker("PUT", f"permissions/{{vhost}}/{name}", everything)
        await site.until(lambda: {n: rights(site, n) for n in before} == before, "their permissions again")
        for name in before:
            site.broker("PUT", f"users/{name}", {"password": "changed by hand", "tags": ""})
        for name in before:
            await until_pods_can_enter(site, name)
        counted = {labels["action"]: count for labels, count in samples(operator.world.metrics.drift_repairs)}
    assert counted["MakeUser"] == 6


def rights(site: Site, user: str) -> tuple[str, str, str] | None:
    found = site.broker("GET", "vhosts/{vhost}/permissions")
    given = {each["user"]: (each["configure"], each["write"], each["read"]) for each in found}
    return given.get(user)


async def until_pods_can_enter(site: Site, user: str) -> None:
    """By what their Secret says."""
    secrets = site.api.request("GET", f"/api/v1/namespaces/{site.namespace}/secrets")["items"]
    [secret] = [
        each
        for each in secrets
        if each["metadata"].get("annotations", {}).get("outbox.dev/broker-user") == user
    ]
    uri = b64decode(secret["data"]["broker-uri"]).decode()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_SECONDS
    while not await can_enter(uri):
        assert loop.time() < deadline, f"the pods of {user} cannot enter"
        await asyncio.sleep(POLL_SECONDS)


async def can_enter(uri: str) -> bool:
    try:
        connection = await aio_pika.connect(uri, timeout=DEADLINE_SECONDS)
    except aio_pika.exceptions.AMQPError:
        return False
    await connection.close()
    return True
