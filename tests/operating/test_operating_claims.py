"""A queue belongs to the listener whose marks are on it: rivals never take it, bind it or delete it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from outbox_operator.broker.actions import Action
from outbox_operator.broker.management import Management
from outbox_operator.broker.snapshot import INSTALLATION, OWNER, BrokerProblem
from outbox_operator.operator import Operator
from outbox_operator.rbac import RESOURCE_RIGHTS
from tests.operator.broker_bridge import broker_bridge
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.identity import identity
from tests.operator.counting import broker_writes, samples, several_looks, several_passes
from tests.operator.pods import Pods
from tests.operator.site import Site
from tests.operator.unchecked import store_unchecked

_REMOVING = ("DeleteIfEmpty", "Delete")
_WORKER = {"image": "shop:1"}


def publish(site: Site, queue: str) -> None:
    message: Any = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
    assert site.broker("POST", "exchanges/{vhost}/amq.default/publish", message)["routed"]


def keys_of(site: Site, queue: str = "shared") -> set[str]:
    return {key for _, key in site.bindings(queue)}


def create(site: Site, *manifests: Manifest) -> None:
    for manifest in manifests:
        site.api.create(manifest)


def events(site: Site, manifest: Manifest, reason: str) -> list[str]:
    return [each["message"] for each in site.events(manifest) if each["reason"] == reason]


async def until_gone(site: Site, *manifests: Manifest) -> None:
    for manifest in manifests:
        what = f"the end of {manifest['metadata']['name']}"
        await site.until(lambda: site.is_gone(manifest), what)  # noqa: B023 - called here


async def until_owned_by(site: Site, listener: Manifest, owner: str) -> str:
    said = await site.until_condition(listener, "TopologyReady", "False", "QueueOwnedBy")
    assert f"belong to OutboxListener {site.namespace}/{owner}" in said["message"].replace("longs", "long")
    return str(said["message"])


def relay_with_secret(site: Site, name: str) -> Manifest:
    """A relay whose broker Secret is its own, and has its name."""
    relay = site.relay(name)
    relay["spec"]["broker"]["secretRef"] = {"name": name}
    return relay


def delete_secret(site: Site, name: str) -> None:
    site.delete({"kind": "Secret", "metadata": {"name": name}})


def bind(site: Site, queue: str, key: str, **mark: str) -> None:
    """Make a binding as an operator does."""
    named = {"owner": OWNER, "installation": INSTALLATION}
    arguments = {named[each]: value for each, value in mark.items()}
    body = {"routing_key": key, "arguments": arguments}
    site.broker("POST", f"bindings/{{vhost}}/e/outbox/q/{queue}", body)


def reconciles(operator: Operator, kind: str) -> float:
    counts = samples(operator.world.metrics.reconciles)
    return sum(value for labels, value in counts if labels["kind"] == kind)


# An owner whose broker is not known.


@pytest.mark.parametrize("policy", _REMOVING)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_an_owner_without_its_secret_keeps_its_queue_and_messages(
    site: Site, policy: str, is_restarted: bool
) -> None:
    owner = site.listener("a", queue="shared", relayRef={"name": "late"}, bindingKeys=["of.a"])
    rival = site.listener("b", queue="shared", bindingKeys=["of.b"], deletionPolicy=policy, worker=_WORKER)
    site.make_secrets()
    site.make_secret("late", uri=site.rabbitmq_url)
    create(site, site.relay(), relay_with_secret(site, "late"), owner)

    async def attack(operator: Operator) -> None:
        await site.until_condition(owner, "RelayReady", "False", "SecretMissing")
        create(site, rival)
        await until_owned_by(site, rival, "a")
        await several_looks(site, operator)
        assert keys_of(site) == {"of.a"}
        assert site.find("Deployment", "b-worker") is None
        site.delete(rival)
        await until_gone(site, rival)
        assert site.messages("shared") == 1
        site.make_secret("late", uri=site.rabbitmq_url)
        await site.until_condition(owner)

    async with site.operating() as operator:
        await site.until_condition(owner)
        publish(site, "shared")
        delete_secret(site, "late")
        if not is_restarted:
            await attack(operator)
    if is_restarted:
        async with site.operating() as operator:
            await attack(operator)
    assert keys_of(site) == {"of.a"}


async def test_an_owner_whose_broker_does_not_answer_yet_keeps_its_queue(site: Site) -> None:
    async with broker_bridge(site) as bridge:
        slow = site.relay("slow")
        slow["spec"]["broker"]["managementUrl"] = bridge.url
        owner = site.listener("a", queue="shared", relayRef={"name": "slow"}, bindingKeys=["of.a"])
        rival = site.listener("b", queue="shared", bindingKeys=["of.b"])
        site.make_secrets()
        create(site, site.relay(), slow, owner)
        async with site.operating():
            await site.until_condition(owner)
        create(site, rival)
        await bridge.cut()
        # Without a mark on the broker, only the status of the owner tells of it.
        for name in ("shared", "shared.dlq"):
            site.broker("DELETE", f"queues/{{vhost}}/{name}")
        async with site.operating() as operator:
            message = await until_owned_by(site, rival, "a")
            assert "not known now" in message
            await several_looks(site, operator)
            assert "shared" not in site.queues()
            await bridge.open()
            await site.until_condition(owner)
            await until_owned_by(site, rival, "a")
            assert keys_of(site) == {"of.a"}


async def test_a_rival_gets_its_queue_when_the_owner_turns_out_to_be_elsewhere(
    site: Site, another_vhost: str
) -> None:
    owner = site.listener("a", queue="shared", relayRef={"name": "late"})
    rival = site.listener("b", queue="shared")
    site.make_secrets()
    site.make_secret("late", uri=another_vhost)
    create(site, site.relay(), relay_with_secret(site, "late"), owner)
    async with site.operating():
        await site.until_condition(owner)
    delete_secret(site, "late")
    create(site, rival)
    async with site.operating():
        await until_owned_by(site, rival, "a")
        site.make_secret("late", uri=another_vhost)
        await site.until_condition(rival)
        await site.until_condition(owner)


async def test_two_queues_of_one_name_are_not_disturbed_while_one_broker_is_unknown(
    site: Site, another_vhost: str
) -> None:
    elsewhere = site.listener("a", queue="shared", relayRef={"name": "late"})
    here = site.listener("b", queue="shared", worker=_WORKER)
    site.make_secrets()
    site.make_secret("late", uri=another_vhost)
    create(site, site.relay(), relay_with_secret(site, "late"), elsewhere, here)
    async with site.operating():
        await site.until_condition(elsewhere)
        await site.until_condition(here, "TopologyReady")
        await Pods(site, here).until_made()
    delete_secret(site, "late")
    async with site.operating() as operator:
        await site.until_condition(elsewhere, "RelayReady", "False", "SecretMissing")
        await several_looks(site, operator)
        assert site.condition(here, "TopologyReady")["status"] == "True"
        assert keys_of(site) == {"user.created"}
        assert site.find("Deployment", "b-worker") is not None


async def test_a_listener_that_lost_its_queue_unbinds_it_and_stops_its_pods(site: Site) -> None:
    owner = site.listener("a", queue="shared", relayRef={"name": "late"}, bindingKeys=["of.a"])
    rival = site.listener("b", queue="shared", bindingKeys=["of.b"], worker=_WORKER)
    site.make_secrets()
    create(site, site.relay(), relay_with_secret(site, "late"), owner, rival)
    async with site.operating():
        await Pods(site, rival).until_made()
        assert [name for name in site.broker_users() if ".b." in name]
    # As if the rival had taken the queue of an owner that nobody knew of.
    bind(site, "shared", "of.a", owner=f"{site.namespace}/a")
    path = f"{site.path_of(owner)}/status"
    site.api.request("PATCH", path, {"status": {"queue": "shared"}}, "application/merge-patch+json")
    publish(site, "shared")
    site.make_secret("late", uri=site.rabbitmq_url)
    async with site.operating():
        await until_owned_by(site, rival, "a")
        await site.until_condition(owner)
        await site.until(lambda: keys_of(site) == {"of.a"}, "the end of the rival's binding")
        await site.until(lambda: site.find("Deployment", "b-worker") is None, "the end of its Deployment")
        await site.until(
            lambda: not [name for name in site.broker_users() if ".b." in name], "the end of its user"
        )
        assert "queue" not in site.status(rival)
        await site.until(lambda: keys_of(site, "shared.dlq") == {"shared"}, "the way to the dead letters")
    assert site.messages("shared") == 1


@pytest.mark.parametrize("writes", range(5))
async def test_another_leader_completes_what_one_had_begun(
    site: Site, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """A queue that one listener loses to another, which also takes over from one that is gone."""
    gone = site.listener("gone", queue="shared", bindingKeys=["of.gone"])
    owner = site.listener("a", queue="shared", relayRef={"name": "late"}, bindingKeys=["of.a"])
    rival = site.listener("b", queue="shared", bindingKeys=["of.b"], deletionPolicy="Delete")
    site.make_secrets()
    create(site, site.relay(), relay_with_secret(site, "late"), gone)
    async with site.operating():
        await site.until_condition(gone)
    site.delete(gone)
    create(site, owner, rival)
    bind(site, "shared", "of.a", owner=f"{site.namespace}/a")
    bind(site, "shared", "of.b", owner=f"{site.namespace}/b")
    publish(site, "shared")
    site.make_secret("late", uri=site.rabbitmq_url)

    def is_settled() -> bool:
        return keys_of(site) == {"of.a"} and bool(site.condition(rival, "TopologyReady"))

    with monkeypatch.context() as patched:
        died = die_after(patched, writes)
        async with site.operating():
            await site.until(lambda: died.is_set() or is_settled(), f"{writes} writes to the broker")
    async with site.operating():
        await site.until_condition(owner)
        await until_owned_by(site, rival, "a")
        await site.until(is_settled, "the bindings of the owner alone")
        site.delete(rival)
        await until_gone(site, rival)
    assert site.messages("shared") == 1


def die_after(patched: pytest.MonkeyPatch, writes: int) -> asyncio.Event:
    """Let an operator write to brokers so many times, and then hang as a dead one does."""
    perform, left, died = Management.perform, [writes], asyncio.Event()

    async def mortal(self: Management, action: Action) -> str | None:
        if left[0] <= 0:
            died.set()
            await asyncio.Event().wait()
        left[0] -= 1
        return await perform(self, action)

    patched.setattr(Management, "perform", mortal)
    return died


# Resources that cannot be read.


@pytest.mark.parametrize("policy", _REMOVING)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_an_invalid_owner_keeps_its_queue_and_messages(
    site: Site, policy: str, is_restarted: bool
) -> None:
    owner = site.listener("a", queue="shared", bindingKeys=["of.a"], retryDelays=["1s"])
    rival = site.listener("b", queue="shared", bindingKeys=["of.b"], deletionPolicy=policy)
    site.make_secrets()
    create(site, site.relay(), owner)

    async def attack(operator: Operator) -> None:
        await site.until_condition(owner, "TopologyReady", "False", "Invalid")
        create(site, rival)
        await until_owned_by(site, rival, "a")
        await several_looks(site, operator)
        assert keys_of(site) == {"of.a"}
        site.delete(rival)
        await until_gone(site, rival)
        assert site.messages("shared") == 1
        store_unchecked(site, owner, retryDelays=["1s"])
        await site.until_condition(owner)

    async with site.operating() as operator:
        await site.until_condition(owner)
        publish(site, "shared")
        store_unchecked(site, owner, retryDelays=["soon"])
        if not is_restarted:
            await attack(operator)
    if is_restarted:
        async with site.operating() as operator:
            await attack(operator)


@pytest.mark.parametrize("policy", _REMOVING)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_an_exchange_that_an_invalid_relay_has_too_stays(
    site: Site, policy: str, is_restarted: bool
) -> None:
    relay, other = site.relay(deletionPolicy=policy), site.relay("other")
    listener = site.listener(relayRef={"name": "other"})
    site.make_secrets()
    create(site, relay, other, listener)

    async def attack() -> None:
        await site.until_condition(other, "TopologyReady", "False", "Invalid")
        site.delete(relay)
        await until_gone(site, relay)

    async with site.operating(give_up_seconds=2):
        await site.until_condition(relay)
        await site.until_condition(listener)
        store_unchecked(site, other, replicas=-1)
        if not is_restarted:
            await attack()
    if is_restarted:
        async with site.operating(give_up_seconds=2):
            await attack()
    assert {"outbox", "outbox.dlx"} <= site.exchanges()
    assert site.bindings(f"{site.namespace}.mail") == {("outbox", "user.created")}
    assert events(site, relay, "BrokerObjectsLeft")


# One broker with two addresses.


def by_name(site: Site, name: str = "by-name", **spec: Any) -> Manifest:
    """A relay of the same virtual host that reaches it by another address."""
    relay = site.relay(name, **spec)
    url = site.management_url
    assert "127.0.0.1" in url
    relay["spec"]["broker"]["managementUrl"] = url.replace("127.0.0.1", "localhost")
    return relay


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_queue_is_not_shared_by_two_addresses_of_one_broker(site: Site, policy: str) -> None:
    older = site.listener("a", queue="shared", bindingKeys=["of.a"], deletionPolicy=policy, retryDelays=[])
    younger = site.listener(
        "b", queue="shared", bindingKeys=["of.b"], deletionPolicy=policy, relayRef={"name": "by-name"}
    )
    site.make_secrets()
    create(site, site.relay(), by_name(site), older, younger)
    async with site.operating() as operator:
        await site.until_condition(older)
        await until_owned_by(site, younger, "a")
        await several_looks(site, operator, 6)
        assert keys_of(site) == {"of.a"}
        publish(site, "shared")
        site.delete(younger)
        await until_gone(site, younger)
        assert site.messages("shared") == 1
        create(site, younger)
        await until_owned_by(site, younger, "a")
        site.broker("DELETE", "queues/{vhost}/shared/contents")
        site.delete(older)
        await until_gone(site, older)
        await site.until_condition(younger)
        await site.until(lambda: keys_of(site) == {"of.b"}, "the younger one's binding alone")


async def test_an_exchange_is_not_deleted_by_another_address_of_its_broker(site: Site) -> None:
    relay, other = site.relay(deletionPolicy="Delete"), by_name(site)
    listener = site.listener(relayRef={"name": "by-name"})
    site.make_secrets()
    create(site, relay, other, listener)
    async with site.operating():
        await site.until_condition(relay)
        await site.until_condition(listener)
        site.delete(relay)
        await until_gone(site, relay)
        assert site.bindings(f"{site.namespace}.mail") == {("outbox", "user.created")}
    [told] = events(site, relay, "BrokerObjectsLeft")
    assert "has it too" in told


async def test_tiers_are_not_removed_by_another_address_of_their_broker(site: Site) -> None:
    one = site.listener("a", retryDelays=["1s"])
    two = site.listener("b", retryDelays=["2s"], relayRef={"name": "by-name"})
    site.make_secrets()
    create(site, site.relay(), by_name(site), one, two)
    async with site.operating(tier_grace_seconds=0) as operator:
        for each in (one, two):
            await site.until_condition(each)
        await site.until(lambda: operator.world.queue.is_idle, "an idle operator")
        written = broker_writes(operator)
        await several_passes(site, operator, 4)
        assert broker_writes(operator) == written
        assert {"outbox.delay_1s", "outbox.delay_2s"} <= set(site.queues())


# Several operators.


@pytest.fixture
def two_clusters(site: Site, tmp_path: Path) -> tuple[Site, Site]:
    """Two namespaces on one virtual host, each of which is all that an operator knows."""
    namespace = f"test-{uuid4().hex[:12]}"
    site.api.make_namespace(namespace)
    rights = [right.manifest() for right in RESOURCE_RIGHTS]
    folder = tmp_path / "other"
    folder.mkdir()
    who = identity(site.api, namespace, folder, {namespace: rights})
    return site, replace(site, namespace=namespace, identity=who)


async def test_two_installations_on_one_exchange_leave_each_others_tiers_alone(
    two_clusters: tuple[Site, Site],
) -> None:
    here, there = two_clusters
    for each, delay in ((here, "1s"), (there, "2s")):
        each.make_secrets()
        create(each, each.relay(), each.listener(retryDelays=[delay, "5s"]))
    async with (
        here.operating(installation="one", tier_grace_seconds=0) as one,
        there.operating(installation="two", tier_grace_seconds=0) as two,
    ):
        for site in (here, there):
            await site.until_condition(site.listener())
            said = await site.until_condition(site.relay(), "TopologyReady", "True", "Shared")
            assert "another operator" in said["message"]
        for operator in (one, two):
            await here.until(lambda: operator.world.queue.is_idle, "an idle operator")  # noqa: B023
        written = broker_writes(one) + broker_writes(two)
        for operator in (one, two):
            await several_passes(here, operator, 4)
        assert broker_writes(one) + broker_writes(two) == written
        tiers = {"outbox.delay_1s", "outbox.delay_2s", "outbox.delay_5s"}
        assert tiers <= set(here.queues())
        # What one does not need any more stays for the other.
        here.edit(here.listener(), retryDelays=[])
        await here.until(lambda: "outbox.delay_1s" not in here.queues(), "the end of a tier")
        await several_passes(here, two, 4)
        assert {"outbox.delay_2s", "outbox.delay_5s"} <= set(here.queues())


async def test_an_exchange_that_another_installation_uses_is_not_deleted(
    two_clusters: tuple[Site, Site],
) -> None:
    here, there = two_clusters
    relay, listener = here.relay(deletionPolicy="Delete"), there.listener()
    for each, manifests in ((here, [relay]), (there, [there.relay(), listener])):
        each.make_secrets()
        create(each, *manifests)
    async with here.operating(installation="one"), there.operating(installation="two"):
        await here.until_condition(relay)
        await there.until_condition(listener)
        here.delete(relay)
        await until_gone(here, relay)
        assert there.bindings(f"{there.namespace}.mail") == {("outbox", "user.created")}
    [told] = events(here, relay, "BrokerObjectsLeft")
    assert "of installation two uses it too" in told


@pytest.mark.parametrize("policy", _REMOVING)
@pytest.mark.parametrize("installations", [("one", "two"), ("one", "one")], ids=["clusters", "namespaces"])
async def test_a_queue_of_another_operators_listener_is_left_alone(
    two_clusters: tuple[Site, Site], policy: str, installations: tuple[str, str]
) -> None:
    here, there = two_clusters
    first = here.listener("a", queue="shared", bindingKeys=["of.a"])
    second = there.listener("b", queue="shared", bindingKeys=["of.b"], deletionPolicy=policy)
    for each in two_clusters:
        each.make_secrets()
        create(each, each.relay())
    create(here, first)
    mine, theirs = installations
    async with here.operating(installation=mine), there.operating(installation=theirs) as other:
        await here.until_condition(first)
        publish(here, "shared")
        create(there, second)
        said = await there.until_condition(second, "TopologyReady", "False", "QueueOwnedBy")
        assert f"an OutboxListener of another namespace of installation {mine}" in said["message"]
        assert here.namespace not in said["message"]
        assert "another operator manages" in said["message"]
        await several_looks(there, other)
        there.delete(second)
        await until_gone(there, second)
    assert keys_of(here) == {"of.a"}
    assert here.messages("shared") == 1


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_queue_that_another_installation_has_bound_too_stays(site: Site, policy: str) -> None:
    """As when two clusters have the same resources, or when one was rebuilt."""
    listener = site.listener(deletionPolicy=policy, bindingKeys=["ours"], retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    create(site, site.relay(), listener)
    async with site.operating(give_up_seconds=1) as operator:
        await site.until_condition(listener)
        bind(site, queue, "theirs", owner=f"{site.namespace}/mail", installation="another")
        said = await site.until_condition(listener, "TopologyReady", "True", "Shared")
        assert "of installation another" in said["message"]
        await several_looks(site, operator)
        assert keys_of(site, queue) == {"ours", "theirs"}
        site.delete(listener)
        await until_gone(site, listener)
        assert keys_of(site, queue) == {"theirs"}
    [told] = events(site, listener, "BrokerObjectsLeft")
    assert "of installation another too" in told


# What is verified before a queue goes.


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_queue_without_the_mark_of_its_listener_is_left(site: Site, policy: str) -> None:
    listener = site.listener(deletionPolicy=policy, retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    create(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener)
    for name in (queue, f"{queue}.dlq"):
        for each in site.broker("GET", f"queues/{{vhost}}/{name}/bindings"):
            if each["source"]:
                path = f"e/{each['source']}/q/{name}/{each['properties_key']}"
                site.broker("DELETE", f"bindings/{{vhost}}/{path}")
    publish(site, queue)
    site.delete(listener)
    async with site.operating():
        await until_gone(site, listener)
    assert site.messages(queue) == 1
    [told] = events(site, listener, "BrokerObjectsLeft")
    assert "no binding with the mark" in told


@pytest.mark.parametrize("policy", _REMOVING)
async def test_a_queue_that_a_paused_rival_has_bound_is_not_deleted(site: Site, policy: str) -> None:
    owner = site.listener("a", queue="shared", bindingKeys=["of.a"], deletionPolicy=policy, retryDelays=[])
    rival = site.listener("b", queue="shared", bindingKeys=["of.b"], paused=True)
    site.make_secrets()
    create(site, site.relay(), owner, rival)
    async with site.operating(give_up_seconds=2):
        await site.until_condition(owner)
        bind(site, "shared", "of.b", owner=f"{site.namespace}/b", installation="tests")
        publish(site, "shared")
        site.delete(owner)
        await until_gone(site, owner)
        assert keys_of(site) == {"of.b"}
        assert site.messages("shared") == 1
    [told] = events(site, owner, "BrokerObjectsLeft")
    assert f"is bound by OutboxListener {site.namespace}/b of installation tests too" in told


async def test_a_deletion_goes_on_after_a_restart_though_the_queue_is_unbound(site: Site) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    queue = f"{site.namespace}.mail"
    site.make_secrets()
    create(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener)
        publish(site, queue)
        await site.until(lambda: site.queues()[queue].get("messages") == 1, "a message that is counted")
        site.delete(listener)
        await site.until(lambda: site.bindings(queue) == set(), "an unbound queue")
        await site.until(
            lambda: "has 1 message" in site.condition(listener, "TopologyReady").get("message", ""),
            "a deletion that waits for a message",
        )
    site.broker("DELETE", f"queues/{{vhost}}/{queue}/contents")
    async with site.operating():
        await until_gone(site, listener)
    assert site.queues() == {}


@pytest.mark.parametrize("writes", range(6))
async def test_another_leader_completes_a_deletion_after_any_write(
    site: Site, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    listener = site.listener(deletionPolicy="DeleteIfEmpty", retryDelays=[])
    site.make_secrets()
    create(site, site.relay(), listener)
    async with site.operating():
        await site.until_condition(listener)
    site.delete(listener)
    with monkeypatch.context() as patched:
        died = die_after(patched, writes)
        async with site.operating(count_seconds=0.5):
            await site.until(lambda: died.is_set() or site.is_gone(listener), f"{writes} writes")
    async with site.operating(count_seconds=0.5):
        await until_gone(site, listener)
    assert site.queues() == {}


async def test_bindings_of_a_deleted_listener_go_when_another_takes_its_queue(site: Site) -> None:
    old = site.listener("a", queue="shared", bindingKeys=["of.a", "of.both"])
    new = site.listener("b", queue="shared", bindingKeys=["of.b", "of.both"])
    site.make_secrets()
    create(site, site.relay(), old)
    async with site.operating():
        await site.until_condition(old)
    bind(site, "shared", "by.hand")
    publish(site, "shared")
    site.delete(old)
    create(site, new)
    async with site.operating():
        await site.until_condition(new)
        assert keys_of(site) == {"of.b", "of.both", "by.hand"}
        owners = {
            each["arguments"].get(OWNER)
            for name in ("shared", "shared.dlq")
            for each in site.broker("GET", f"queues/{{vhost}}/{name}/bindings")
        }
    assert owners == {f"{site.namespace}/b", None}
    assert site.messages("shared") == 1


# Broker users.


@pytest.mark.parametrize("kind", ["OutboxListener", "OutboxRelay"])
async def test_the_user_of_a_deleted_resource_goes_when_its_broker_is_back(site: Site, kind: str) -> None:
    async with broker_bridge(site) as bridge:
        relay = site.relay(replicas=1)
        relay["spec"]["broker"]["managementUrl"] = bridge.url
        listener = site.listener(worker=_WORKER)
        site.make_secrets()
        create(site, relay, listener)
        departing = listener if kind == "OutboxListener" else relay
        async with site.operating(user_grace_seconds=0.1) as operator:
            for each in (relay, listener):
                await Pods(site, each).until_made()
            [vhost] = [each.vhost for each in operator.world.entries.values()]
            assert vhost is not None
            await bridge.cut()
            await site.until(lambda: isinstance(vhost.state, BrokerProblem), "a broker that is away")
            before = reconciles(operator, kind)
            site.delete(departing)
            # One look finds it gone, one more finds its user due; there may be one before.
            await site.until(lambda: reconciles(operator, kind) >= before + 3, "a removal that failed")
            await bridge.open()
            name = f".{departing['metadata']['name']}."
            await site.until(
                lambda: not [each for each in site.broker_users() if name in each], "the end of its user"
            )


async def test_the_users_of_deleted_resources_go_though_their_vhost_has_gone_for_good(site: Site) -> None:
    relay, listener = site.relay(replicas=1), site.listener(worker=_WORKER)
    site.make_secrets()
    create(site, relay, listener)
    async with site.operating(user_grace_seconds=0.1):
        for each in (relay, listener):
            await Pods(site, each).until_made()
        assert len(site.broker_users()) == 2
        site.broker("DELETE", "vhosts/{vhost}")
        try:
            for each in (relay, listener):
                await site.until_condition(each, "Ready", "False", "VhostMissing")
                site.delete(each)
            await site.until(lambda: not site.broker_users(), "the end of their users")
        finally:
            site.broker("PUT", "vhosts/{vhost}")


async def test_the_user_of_a_deleted_relay_goes_though_its_secret_went_first(site: Site) -> None:
    relay = site.relay(replicas=1)
    site.make_secrets()
    create(site, relay)
    async with site.operating(user_grace_seconds=0.1):
        await Pods(site, relay).until_made()
        assert site.broker_users()
        delete_secret(site, "shop-rabbitmq")
        await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        site.delete(relay)
        await site.until(lambda: not site.broker_users(), "the end of its user")
