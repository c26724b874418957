"""A broker or an API server that is away: the conditions tell the truth, and all is well when it is back."""

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from outbox_cli.local import start
from tests.operator.broker_bridge import BrokerBridge, broker_bridge
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.bridge import bridge as api_bridge
from tests.operator.counting import several_looks
from tests.operator.site import Site


def bridged(site: Site, bridge: BrokerBridge) -> Manifest:
    """A relay whose broker is on the other side of a bridge."""
    relay = site.relay()
    relay["spec"]["broker"]["managementUrl"] = bridge.url
    return relay


async def unreachable(site: Site, relay: Manifest, *listeners: Manifest) -> None:
    """Wait until all of them say that the broker is away, and nothing else of what only it knows."""
    said = await site.until_condition(relay, "CredentialsValid", "False", "Unreachable")
    assert relay["spec"]["broker"]["managementUrl"] in said["message"]
    for listener in listeners:
        said = await site.until_condition(listener, "RelayReady", "False", "Unreachable")
        assert f'OutboxRelay "{relay["metadata"]["name"]}"' in said["message"]
    for each in (relay, *listeners):
        await site.until_condition(each, "Ready", "False", "Unreachable")
        await site.until_condition(each, "TopologyReady", "Unknown", "Unreachable")


async def test_a_broker_that_is_away_at_first_makes_nothing_falsely_ready(site: Site) -> None:
    site.make_secrets()
    async with broker_bridge(site, is_open=False) as bridge, site.operating():
        relay, listeners = bridged(site, bridge), [site.listener("one"), site.listener("two")]
        for each in (relay, *listeners):
            site.api.create(each)
        await unreachable(site, relay, *listeners)
        for each in (relay, *listeners):
            assert "Ready" not in {event["reason"] for event in site.events(each)}
            assert not {"queue", "exchange"} & set(site.status(each))
        assert site.queues() == {}
        await bridge.open()
        for each in (relay, *listeners):
            await site.until_condition(each)
    assert f"{site.namespace}.one" in site.queues()


async def test_an_outage_is_told_of_every_resource_and_ends_by_itself(site: Site) -> None:
    site.make_secrets()
    async with broker_bridge(site) as bridge, site.operating():
        relay, listeners = bridged(site, bridge), [site.listener(f"mail-{number}") for number in range(5)]
        mine = (relay, *listeners)
        other_relay = site.relay("other", exchange="other")
        other = site.listener("undisturbed", relayRef={"name": "other"})
        for each in (*mine, other_relay, other):
            site.api.create(each)
        for each in (*mine, other_relay, other):
            await site.until_condition(each)
        before = {name: site.get(other)["metadata"][name] for name in ("generation", "resourceVersion")}
        await bridge.cut()
        await unreachable(site, *mine)
        # The other broker's are looked after meanwhile.
        queue = f"{site.namespace}.undisturbed"
        site.broker("DELETE", f"queues/{{vhost}}/{queue}")
        await site.until(lambda: queue in site.queues(), "the other broker's queue again")
        for each in (other_relay, other):
            assert site.condition(each)["status"] == "True"
        site.broker("DELETE", f"queues/{{vhost}}/{site.namespace}.mail-0")
        await bridge.open()
        for each in mine:
            await site.until_condition(each)
        assert f"{site.namespace}.mail-0" in site.queues()
        generations = {site.get(each)["metadata"]["generation"] for each in mine}
        assert generations == {1}
        assert {name: site.get(other)["metadata"][name] for name in before} == before


async def test_a_resource_made_during_an_outage_becomes_ready_after_it(site: Site) -> None:
    site.make_secrets()
    async with broker_bridge(site) as bridge, site.operating():
        relay, first, late = bridged(site, bridge), site.listener("first"), site.listener("late")
        for each in (relay, first):
            site.api.create(each)
        await site.until_condition(first)
        await bridge.cut()
        site.api.create(late)
        await unreachable(site, relay, first, late)
        site.edit(first, bindingKeys=["changed.meanwhile"])
        await unreachable(site, relay, first, late)
        await bridge.open()
        for each in (relay, first, late):
            await site.until_condition(each)
    assert site.bindings(f"{site.namespace}.first") == {("outbox", "changed.meanwhile")}


async def test_a_rabbitmq_that_is_stopped_and_started_is_settled_again(site: Site) -> None:
    with start(postgres=False, environment={}, progress=lambda _: None) as private:
        url = urlunsplit(urlsplit(private.rabbitmq.url)._replace(path="/%2F"))
        here = replace(site, services=replace(private, found_postgres=None), rabbitmq_url=url)
        relay, listener = here.relay(), here.listener()
        here.make_secrets()
        async with here.operating():
            for each in (relay, listener):
                here.api.create(each)
            for each in (relay, listener):
                await here.until_condition(each)
            await asyncio.to_thread(private.rabbitmq.stop)
            await unreachable(here, relay, listener)
            await asyncio.to_thread(private.rabbitmq.start)
            for each in (relay, listener):
                await here.until_condition(each)


async def test_the_operator_goes_on_after_an_outage_of_the_api_server(site: Site) -> None:
    relay, listener, late = site.relay(), site.listener(), site.listener("late")
    site.make_secrets()
    async with api_bridge(site.identity.kubeconfig) as (bridge, kubeconfig):
        far = replace(site, identity=replace(site.identity, kubeconfig=kubeconfig))
        async with far.operating() as operator:
            for each in (relay, listener):
                site.api.create(each)
            for each in (relay, listener):
                await site.until_condition(each)
            await bridge.cut()
            # What concerns the broker alone goes on.
            queue = f"{site.namespace}.mail"
            site.broker("DELETE", f"queues/{{vhost}}/{queue}")
            await site.until(lambda: queue in site.queues(), "the queue again")
            site.edit(listener, bindingKeys=["changed.meanwhile"])
            site.api.create(late)
            await several_looks(site, operator)
            await bridge.open()
            for each in (relay, listener, late):
                await site.until_condition(each)
    assert site.bindings(queue) == {("outbox", "changed.meanwhile")}
