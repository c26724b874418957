"""Objects that are replaced by others of the same name while the operator is at them."""

import asyncio
from urllib.parse import urlsplit

import pytest

from outbox_operator.broker.actions import Action, MakeQueue
from outbox_operator.broker.management import Management
from tests.operator.site import Site


async def test_a_listener_made_anew_does_not_inherit_a_status(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `status.queue` a listener is known to have its queue, which it then may delete."""
    perform, reached, proceed = Management.perform, asyncio.Event(), asyncio.Event()

    async def held(self: Management, action: Action) -> str | None:
        if isinstance(action, MakeQueue) and ".mail" in action.queue.name:
            reached.set()
            await proceed.wait()
        return await perform(self, action)

    monkeypatch.setattr(Management, "perform", held)
    site.make_secrets()
    site.api.create(site.relay())
    site.api.create(site.listener())
    async with site.operating() as operator:
        await asyncio.wait_for(reached.wait(), 30)
        site.delete(site.listener())
        # It is not to get a queue, so that whatever is said of one is about the first.
        site.api.create(site.listener(paused=True))
        proceed.set()
        await site.until(lambda: site.condition(site.listener(), "Paused"), "that it is paused")
        await site.until(lambda: operator.world.queue.is_idle, "an idle operator")
        assert "queue" not in site.status(site.listener())
        assert site.condition(site.listener(), "TopologyReady") == {}


async def test_a_vhost_that_is_made_anew_gets_everything_again(site: Site) -> None:
    """With a virtual host go the permissions of its users, which may be given some time after it is made."""
    relay, listener = site.relay(), site.listener()
    user = urlsplit(site.rabbitmq_url).username
    site.make_secrets()
    for each in (relay, listener):
        site.api.create(each)
    async with site.operating():
        for each in (relay, listener):
            await site.until_condition(each)
        before = set(site.queues())
        site.broker("DELETE", "vhosts/{vhost}")
        await site.until_condition(relay, "CredentialsValid", "False", "VhostMissing")
        site.broker("PUT", "vhosts/{vhost}")
        site.broker("DELETE", f"permissions/{{vhost}}/{user}")
        await site.until_condition(relay, "TopologyReady", "False", "PermissionDenied")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        site.broker("PUT", f"permissions/{{vhost}}/{user}", everything)
        for each in (relay, listener):
            await site.until_condition(each)
    assert set(site.queues()) == before
    assert site.bindings(f"{site.namespace}.mail") == {("outbox", "user.created")}
