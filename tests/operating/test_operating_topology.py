"""What is on the broker is what the resources say: no more, no less, and nobody else's."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from outbox.topology import Subscription, topology
from outbox_operator.broker.snapshot import OWNER
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import several_passes
from tests.operator.pods import Pods
from tests.operator.site import Site

KEY = ("user.created",)
EAGER: dict[str, Any] = {"tier_grace_seconds": 0}
"""An operator that takes away a tier as soon as nobody needs it."""


def start(site: Site, *manifests: Manifest) -> None:
    """What a user applies, with the Secrets that it names."""
    site.make_secrets()
    for manifest in manifests:
        site.api.create(manifest)


def marks(site: Site, queue: str) -> set[tuple[str, str | None]]:
    """The key of each binding of a queue to the exchange, and whose it is."""
    found = site.broker("GET", f"queues/{{vhost}}/{queue}/bindings")
    return {(each["routing_key"], each["arguments"].get(OWNER)) for each in found if each["source"]}


def bind(site: Site, exchange: str, queue: str, key: str) -> None:
    """As somebody does who knows nothing of the operator."""
    site.broker("POST", f"bindings/{{vhost}}/e/{exchange}/q/{queue}", {"routing_key": key})


def publish(site: Site, exchange: str, key: str) -> None:
    message = {"properties": {}, "routing_key": key, "payload": "x", "payload_encoding": "string"}
    assert site.broker("POST", f"exchanges/{{vhost}}/{exchange}/publish", message)["routed"]


def make_tier(site: Site, name: str, seconds: int) -> None:
    """As a worker does that declares its own."""
    wanted = topology("outbox", [Subscription("any", KEY, (timedelta(seconds=seconds),))])
    arguments = next(queue.arguments for queue in wanted.queues if queue.name == name)
    site.broker("PUT", f"exchanges/{{vhost}}/{name}", {"type": "fanout", "durable": True})
    site.broker("PUT", f"queues/{{vhost}}/{name}", {"durable": True, "arguments": arguments})
    bind(site, name, name, "")


def tiers(site: Site) -> set[str]:
    """The delay tiers that are there as a queue or as an exchange."""
    return {name for name in {*site.queues(), *site.exchanges()} if ".delay_" in name}


def seconds(*values: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in values)


async def test_everything_is_made_exactly_as_the_topology_says(site: Site) -> None:
    limits = {"maxLength": 1000, "maxBytes": 10_000_000, "deliveryLimit": 7}
    listeners = [
        site.listener("plain"),
        site.listener("limited", limits=limits, retryDelays=["300ms", "2s"], bindingKeys=["a.*", "b.#"]),
        site.listener("ordered", ordered=True, retryDelays=["45s"]),
        site.listener("impatient", retryDelays=[], queue="some queue"),
    ]
    start(site, site.relay(), *listeners)
    async with site.operating():
        for listener in listeners:
            await site.until_condition(listener)
    namespace = site.namespace
    expected = topology(
        "outbox",
        [
            Subscription(f"{namespace}.plain", KEY, seconds(1, 10, 60, 300)),
            Subscription(
                f"{namespace}.limited",
                ("a.*", "b.#"),
                seconds(0.3, 2),
                max_length=1000,
                max_bytes=10_000_000,
                delivery_limit=7,
            ),
            Subscription(f"{namespace}.ordered", KEY, seconds(45), ordered=True),
            Subscription("some queue", KEY, ()),
        ],
    )
    # As text: to Python 1 is True, and to the broker it is not.
    found = {name: json.dumps(queue["arguments"], sort_keys=True) for name, queue in site.queues().items()}
    assert found == {queue.name: json.dumps(queue.arguments, sort_keys=True) for queue in expected.queues}
    assert all(queue["durable"] and not queue["auto_delete"] for queue in site.queues().values())
    exchanges = {each["name"]: each for each in site.broker("GET", "exchanges/{vhost}")}
    assert site.exchanges() == {each.name for each in expected.exchanges}
    assert all(
        (exchanges[each.name]["type"], exchanges[each.name]["durable"]) == (each.kind, True)
        for each in expected.exchanges
    )
    bindings = site.broker("GET", "bindings/{vhost}")
    made = [(each["source"], each["destination"], each["routing_key"]) for each in bindings if each["source"]]
    assert sorted(made) == sorted((each.exchange, each.queue, each.routing_key) for each in expected.bindings)


async def test_an_ordered_listener_has_one_consumer_at_a_time_and_no_tiers(site: Site) -> None:
    listener = site.listener(ordered=True, retryDelays=["45s"])
    start(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener)
    arguments = site.queues()[f"{site.namespace}.mail"]["arguments"]
    assert arguments["x-single-active-consumer"] is True
    assert tiers(site) == set()


async def test_an_edit_of_the_keys_binds_the_new_and_unbinds_the_old_and_nobody_elses(site: Site) -> None:
    listener = site.listener(bindingKeys=["a.b", "a.c"])
    queue, owner = f"{site.namespace}.mail", f"{site.namespace}/mail"
    start(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener)
        assert marks(site, queue) == {("a.b", owner), ("a.c", owner)}
        # One of their own, and one that is beside ours with the same key.
        bind(site, "outbox", queue, "x.y")
        bind(site, "outbox", queue, "a.b")
        site.edit(listener, bindingKeys=["a.c", "a.d"])
        await site.until_condition(listener)
        theirs: set[tuple[str, str | None]] = {("x.y", None), ("a.b", None)}
        assert marks(site, queue) == {("a.c", owner), ("a.d", owner), *theirs}
        site.edit(listener, bindingKeys=["x.y"])
        await site.until_condition(listener)
        assert marks(site, queue) == {("x.y", owner), *theirs}


async def test_an_edit_of_the_delays_makes_new_tiers_and_takes_the_old_away(site: Site) -> None:
    listener = site.listener(retryDelays=["1s", "2s"])
    start(site, site.relay(), listener)
    async with site.operating(**EAGER):
        await site.until_condition(listener)
        assert tiers(site) == {"outbox.delay_1s", "outbox.delay_2s"}
        site.edit(listener, retryDelays=["2s", "500ms"])
        await site.until_condition(listener)
        await site.until(
            lambda: tiers(site) == {"outbox.delay_2s", "outbox.delay_500ms"}, "the new tiers and not the old"
        )
        await site.until_condition(site.relay())


def worker_of(site: Site) -> tuple[Manifest, Pods]:
    listener = site.listener(retryDelays=["1s"], worker={"image": "shop:1"})
    start(site, site.relay(), listener)
    return listener, Pods(site, listener)


def written(site: Site, pods: Pods) -> str:
    """What the broker user of the pods may write to."""
    user = urlsplit(pods.broker_uri).username
    return str(site.broker("GET", f"permissions/{{vhost}}/{user}")["write"])


async def test_the_tiers_of_a_paused_listener_stay(site: Site) -> None:
    listener, pods = worker_of(site)
    async with site.operating(**EAGER) as operator:
        await pods.until_made()
        site.edit(listener, paused=True, retryDelays=["10s"])
        await site.until_condition(listener, "Paused")
        await several_passes(site, operator)
        assert "outbox.delay_1s" in tiers(site)


async def test_tiers_and_permissions_outlast_the_pods_of_before(site: Site) -> None:
    listener, pods = worker_of(site)
    async with site.operating(**EAGER) as operator:
        await pods.until_made()
        pods.make_running_pod("old")
        pods.roll_out()
        await site.until_condition(listener)
        site.edit(listener, retryDelays=["10s"])
        await site.until(lambda: "outbox.delay_10s" in tiers(site), "the new tier")
        pods.begin_rollout()
        await several_passes(site, operator)
        assert tiers(site) == {"outbox.delay_1s", "outbox.delay_10s"}
        assert "delay_1s" in written(site, pods)
        assert "delay_10s" in written(site, pods)
        pods.end_pod("old")
        pods.roll_out()
        await site.until(lambda: tiers(site) == {"outbox.delay_10s"}, "the end of the old tier")
        await site.until(lambda: "delay_1s" not in written(site, pods), "the end of the old permission")


async def test_tiers_and_permissions_stay_while_an_edit_cannot_be_applied(site: Site) -> None:
    listener, pods = worker_of(site)
    async with site.operating(**EAGER) as operator:
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(listener)
        # The API server takes this in a resource, and not in a Deployment.
        worker = {"image": "shop:1", "template": {"nodeSelector": {"not a label": "x"}}}
        site.edit(listener, retryDelays=["10s"], worker=worker)
        await site.until_condition(listener, "WorkloadAvailable", "False")
        await several_passes(site, operator)
        assert "outbox.delay_1s" in tiers(site)
        assert "delay_1s" in written(site, pods)


async def test_a_tier_is_kept_for_a_while_after_nobody_needs_it(site: Site) -> None:
    listener = site.listener(retryDelays=["1s", "2s"])
    start(site, site.relay(), listener)
    async with site.operating(tier_grace_seconds=3600) as operator:
        await site.until_condition(listener)
        site.edit(listener, retryDelays=["2s"])
        await site.until_condition(listener)
        await several_passes(site, operator)
        assert tiers(site) == {"outbox.delay_1s", "outbox.delay_2s"}


async def test_a_tier_with_a_message_stays(site: Site) -> None:
    listener = site.listener(retryDelays=["1h", "2h"])
    start(site, site.relay(), listener)
    full, empty = "outbox.delay_3600s", "outbox.delay_7200s"
    async with site.operating(**EAGER):
        await site.until_condition(listener)
        publish(site, full, f"{site.namespace}.mail")
        await site.until(lambda: site.queues()[full].get("messages") == 1, "the message in the listing")
        site.edit(listener, retryDelays=[])
        await site.until(lambda: tiers(site) == {full}, f"the end of {empty}")
        assert full in site.exchanges()
        assert site.messages(full) == 1


async def test_a_message_that_is_not_in_the_listing_yet_is_not_lost_with_its_tier(site: Site) -> None:
    relay, listener = site.relay(), site.listener(retryDelays=["1h"])
    start(site, relay, listener)
    tier = "outbox.delay_3600s"
    async with site.operating(**EAGER) as operator:
        await site.until_condition(relay)
        await site.until_condition(listener)
        # The broker counts the messages of a quorum queue every five seconds.
        publish(site, tier, f"{site.namespace}.mail")
        site.edit(listener, retryDelays=[])
        await site.until(lambda: tier not in site.exchanges(), "the end of the tier's exchange")
        await several_passes(site, operator)
        assert site.messages(tier) == 1
        site.broker("DELETE", f"queues/{{vhost}}/{tier}/contents")
        await site.until(lambda: tier not in site.queues(), "the end of the tier, which is empty now")
    assert all(event["type"] == "Normal" for event in site.events(relay)), site.events(relay)
    assert site.condition(relay)["status"] == "True"


async def test_a_tier_that_another_listener_needs_stays(site: Site) -> None:
    one, other = (
        site.listener("one", retryDelays=["1s", "2s", "3s"]),
        site.listener("two", retryDelays=["1s"]),
    )
    start(site, site.relay(), one, other)
    async with site.operating(**EAGER):
        await site.until_condition(one)
        await site.until_condition(other)
        site.edit(one, retryDelays=["3s"])
        await site.until(lambda: "outbox.delay_2s" not in tiers(site), "the end of an unused tier")
        assert tiers(site) == {"outbox.delay_1s", "outbox.delay_3s"}
        site.delete(other)
        await site.until(lambda: tiers(site) == {"outbox.delay_3s"}, "the end of the other's tier")


async def test_a_tier_that_a_listener_of_another_relay_needs_stays(site: Site) -> None:
    first, second = site.relay("first"), site.relay("second")
    one = site.listener("one", relayRef={"name": "first"}, retryDelays=["1s", "2s"])
    other = site.listener("two", relayRef={"name": "second"}, retryDelays=["1s"])
    start(site, first, second, one, other)
    async with site.operating(**EAGER):
        await site.until_condition(one)
        await site.until_condition(other)
        site.edit(one, retryDelays=[])
        await site.until(lambda: tiers(site) == {"outbox.delay_1s"}, "the end of an unused tier")


async def test_a_tier_stays_for_a_relay_whose_secret_is_gone_for_a_while(site: Site) -> None:
    second = site.relay("second")
    second["spec"]["broker"]["secretRef"] = {"name": "second-rabbitmq"}
    first = site.relay("first")
    one = site.listener("one", relayRef={"name": "first"}, retryDelays=["1s", "2s"])
    other = site.listener("two", relayRef={"name": "second"}, retryDelays=["1s"])
    site.make_secret("second-rabbitmq", uri=site.rabbitmq_url)
    start(site, first, second, one, other)
    async with site.operating(**EAGER):
        await site.until_condition(one)
        await site.until_condition(other)
        site.delete({"kind": "Secret", "metadata": {"name": "second-rabbitmq"}})
        await site.until_condition(second, "CredentialsValid", "False", "SecretMissing")
        site.edit(one, retryDelays=[])
        await site.until(lambda: "outbox.delay_2s" not in tiers(site), "the end of an unused tier")
        assert tiers(site) == {"outbox.delay_1s"}


async def test_a_tier_stays_for_a_listener_whose_relay_was_deleted(site: Site) -> None:
    first, second = site.relay("first"), site.relay("second")
    one = site.listener("one", relayRef={"name": "first"}, retryDelays=["1s", "2s"])
    other = site.listener("two", relayRef={"name": "second"}, retryDelays=["1s"], worker={"image": "shop:1"})
    start(site, first, second, one, other)
    async with site.operating(**EAGER):
        await site.until_condition(one)
        await Pods(site, other).until_made()
        site.delete(second)
        await site.until_condition(other, "RelayReady", "False", "RelayMissing")
        site.edit(one, retryDelays=[])
        await site.until(lambda: "outbox.delay_2s" not in tiers(site), "the end of an unused tier")
        assert tiers(site) == {"outbox.delay_1s"}


async def test_a_tier_stays_for_a_listener_that_moved_and_left_its_queue(
    site: Site, another_vhost: str
) -> None:
    second = site.relay("second")
    second["spec"]["broker"]["secretRef"] = {"name": "second-rabbitmq"}
    one = site.listener("one", relayRef={"name": "first"}, retryDelays=["1s", "2s"])
    other = site.listener("two", relayRef={"name": "second"}, retryDelays=["1s"], worker={"image": "shop:1"})
    site.make_secret("second-rabbitmq", uri=site.rabbitmq_url)
    start(site, site.relay("first"), second, one, other)
    async with site.operating(**EAGER):
        await site.until_condition(one)
        pods = Pods(site, other)
        await pods.until_made()
        pods.roll_out()
        secret = pods.secret_name
        site.change_secret("second-rabbitmq", uri=another_vhost)
        await pods.until_another_secret(secret)
        await site.until(lambda: site.status(other).get("previousVirtualHosts"), "the virtual host it left")
        # Pods of before still work in there: the rollout never ends.
        site.edit(one, retryDelays=[])
        await site.until(lambda: "outbox.delay_2s" not in tiers(site), "the end of an unused tier")
        assert tiers(site) == {"outbox.delay_1s"}


async def test_a_tier_that_a_worker_declared_itself_is_not_taken_away(site: Site) -> None:
    listener = site.listener(retryDelays=["1s", "2s"])
    start(site, site.relay(), listener)
    async with site.operating(**EAGER):
        await site.until_condition(listener)
        theirs = "outbox.delay_77s"
        make_tier(site, theirs, 77)
        # Ours, which such a worker uses as well.
        make_tier(site, "outbox.delay_1s", 1)
        site.edit(listener, retryDelays=[])
        await site.until(lambda: "outbox.delay_2s" not in tiers(site), "the end of an unused tier")
        assert tiers(site) == {theirs, "outbox.delay_1s"}
        assert theirs in site.queues()
        assert theirs in site.exchanges()


async def test_listeners_of_a_deleted_relay_say_so_and_work_again_with_a_new_one(site: Site) -> None:
    relay, listeners = site.relay(), [site.listener("one"), site.listener("two")]
    start(site, relay, *listeners)
    queue = f"{site.namespace}.one"
    async with site.operating():
        for listener in listeners:
            await site.until_condition(listener)
        publish(site, "outbox", "user.created")
        site.delete(relay)
        assert site.is_gone(relay)
        for listener in listeners:
            said = await site.until_condition(listener, "RelayReady", "False", "RelayMissing")
            assert 'OutboxRelay "shop"' in said["message"]
            assert site.condition(listener)["status"] == "False"
        site.api.create(relay)
        for listener in listeners:
            await site.until_condition(listener)
    assert site.bindings(queue) == {("outbox", "user.created")}
    assert site.messages(queue) == 1


async def test_two_relays_share_an_exchange(site: Site) -> None:
    first, second = site.relay("first"), site.relay("second")
    one = site.listener("one", relayRef={"name": "first"})
    other = site.listener("two", relayRef={"name": "second"})
    start(site, first, second, one, other)
    async with site.operating():
        for each in (first, second, one, other):
            await site.until_condition(each)
        site.delete(first)
        await site.until_condition(one, "RelayReady", "False", "RelayMissing")
        site.broker("DELETE", "exchanges/{vhost}/outbox")
        queue = f"{site.namespace}.two"
        await site.until(lambda: site.bindings(queue) == {("outbox", "user.created")}, "the binding again")
        assert site.condition(second)["status"] == "True"
