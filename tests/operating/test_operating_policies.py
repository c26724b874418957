"""Policies of the broker that would lose messages are reported before they do, and nothing else is."""

from typing import Any

import pytest

from outbox_operator.broker import calls
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import several_looks
from tests.operator.pods import Pods
from tests.operator.site import Site


def set_policy(site: Site, name: str, pattern: str, kind: str = "policies", **definition: Any) -> None:
    body = {
        "pattern": pattern,
        "definition": {key.replace("_", "-"): value for key, value in definition.items()},
    }
    site.broker("PUT", f"{kind}/{{vhost}}/{name}", body)


async def ready(site: Site, *manifests: Manifest) -> None:
    site.make_secrets()
    for manifest in manifests:
        site.api.create(manifest)
    for manifest in manifests:
        await site.until_condition(manifest)


@pytest.mark.parametrize(
    ("pattern", "definition", "words"),
    [
        ("[.]mail$", {"expires": 3_600_000}, ["has expires=3600000", "deletes it with its messages"]),
        ("[.]dlq$", {"message_ttl": 1000}, ["has message-ttl=1000", "removes dead letters"]),
        ("[.]dlq$", {"max_length": 10}, ["has max-length=10", "drops its oldest dead letters"]),
        ("[.]mail$", {"overflow": "drop-head"}, ["has overflow=drop-head", "loses dead letters"]),
        ("[.]delay_10s$", {"message_ttl": 1}, ["has message-ttl=1", "which is 10000 ms"]),
    ],
    ids=["expires", "message-ttl", "max-length", "overflow", "a shorter delay"],
)
async def test_a_policy_that_loses_messages_is_reported_and_its_end_too(
    site: Site, pattern: str, definition: dict[str, Any], words: list[str]
) -> None:
    listener = site.listener()
    async with site.operating():
        await ready(site, site.relay(), listener)
        set_policy(site, "theirs", pattern, **definition)
        said = await site.until_condition(listener, "TopologyReady", "False", "HarmfulPolicy")
        for each in (*words, 'by policy "theirs"', "remove "):
            assert each in said["message"]
        assert site.condition(listener)["reason"] == "HarmfulPolicy"
        await site.until(
            lambda: any(each["reason"] == "HarmfulPolicy" for each in site.events(listener)), "an Event"
        )
        site.broker("DELETE", "policies/{vhost}/theirs")
        await site.until_condition(listener)


async def test_an_operator_policy_that_loses_messages_is_reported(site: Site) -> None:
    listener = site.listener()
    async with site.operating():
        await ready(site, site.relay(), listener)
        set_policy(site, "limits", "[.]mail$", "operator-policies", expires=3_600_000)
        said = await site.until_condition(listener, "TopologyReady", "False", "HarmfulPolicy")
        assert 'by operator policy "limits"' in said["message"]
        site.broker("DELETE", "operator-policies/{vhost}/limits")
        await site.until_condition(listener)


async def test_a_policy_that_changes_is_compared_again(site: Site) -> None:
    """Its name in the listing of queues stays the same."""
    listener = site.listener()
    async with site.operating():
        await ready(site, site.relay(), listener)
        set_policy(site, "theirs", "[.]mail$", max_length=10)
        set_policy(site, "theirs", "[.]mail$", max_length=10, overflow="drop-head")
        await site.until_condition(listener, "TopologyReady", "False", "HarmfulPolicy")
        set_policy(site, "theirs", "[.]mail$", max_length=10)
        await site.until_condition(listener)


async def test_an_alternate_exchange_by_policy_is_reported(site: Site) -> None:
    relay = site.relay()
    async with site.operating():
        await ready(site, relay)
        set_policy(site, "theirs", "^outbox$", alternate_exchange="elsewhere")
        said = await site.until_condition(relay, "TopologyReady", "False", "HarmfulPolicy")
        assert 'exchange "outbox" has alternate-exchange=elsewhere by policy "theirs"' in said["message"]


async def test_a_policy_that_is_there_first_is_reported_and_the_queue_is_not_bound(site: Site) -> None:
    listener, queue = site.listener(), f"{site.namespace}.mail"
    set_policy(site, "theirs", "[.]mail$", expires=3_600_000)
    site.make_secrets()
    for each in (site.relay(), listener):
        site.api.create(each)
    async with site.operating() as operator:
        await site.until_condition(listener, "TopologyReady", "False", "HarmfulPolicy")
        await several_looks(site, operator)
        assert site.bindings(queue) == set()
        assert site.status(listener)["queue"] == queue
        site.broker("DELETE", "policies/{vhost}/theirs")
        await site.until_condition(listener)
        assert site.bindings(queue) == {("outbox", "user.created")}


async def test_policies_that_harm_nothing_leave_a_listener_ready(site: Site) -> None:
    listener = site.listener()
    async with site.operating() as operator:
        await ready(site, site.relay(), listener)
        set_policy(site, "theirs", "[.]mail$", max_length=10, dead_letter_exchange="elsewhere")
        set_policy(site, "others", "^their", expires=1000)
        await several_looks(site, operator)
        assert site.condition(listener)["status"] == "True"


async def test_a_policy_does_not_keep_pods_from_being_updated_or_a_queue_from_being_deleted(
    site: Site,
) -> None:
    listener = site.listener(worker={"image": "shop:1"}, deletionPolicy="Delete", retryDelays=[])
    pods = Pods(site, listener)
    set_policy(site, "theirs", "[.]dlq$", max_length=10)
    site.make_secrets()
    for each in (site.relay(), listener):
        site.api.create(each)
    async with site.operating():
        await site.until_condition(listener, "TopologyReady", "False", "HarmfulPolicy")
        await pods.until_made()
        site.edit(listener, worker={"image": "shop:2"})
        await site.until(lambda: pods.container["image"] == "shop:2", "pods of the new image")
        site.delete(listener)
        await site.until(lambda: site.is_gone(listener), "the end of the listener")
    assert site.queues() == {}


async def test_a_user_who_may_not_see_operator_policies_sees_the_rest(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hosted brokers hide them."""

    def hidden(vhost: str) -> tuple[calls.Call, calls.Call]:
        own, _ = _policy_listings(vhost)
        return own, calls.Call("GET", f"operator-policies/{vhost}-of-others", "list the operator policies")

    _policy_listings = calls.policy_listings
    monkeypatch.setattr(calls, "policy_listings", hidden)
    listener = site.listener()
    async with site.operating():
        await ready(site, site.relay(), listener)
        set_policy(site, "theirs", "[.]mail$", expires=3_600_000)
        await site.until_condition(listener, "TopologyReady", "False", "HarmfulPolicy")
