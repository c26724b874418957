"""The operator as a user meets it: apply, and it is so."""

from tests.operator.site import Site


async def test_a_relay_and_a_listener_become_ready_in_any_order(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    async with site.operating():
        site.api.create(listener)
        await site.until_condition(listener, "RelayReady", "False", "RelayMissing")
        site.api.create(relay)
        await site.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        site.make_secrets()
        await site.until_condition(relay)
        await site.until_condition(listener)
    assert site.exchanges() >= {"outbox", "outbox.dlx", "outbox.delay_1s"}
    queue = f"{site.namespace}.mail"
    assert set(site.queues()) >= {queue, f"{queue}.dlq", "outbox.delay_300s"}
    assert site.bindings(queue) == {("outbox", "user.created")}
    assert site.status(listener)["queue"] == queue


async def test_a_queue_removed_by_hand_is_back(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    queue = f"{site.namespace}.mail"
    async with site.operating():
        await site.until_condition(listener)
        site.broker("DELETE", f"queues/{{vhost}}/{queue}")
        await site.until(lambda: queue in site.queues(), "the queue again")
        await site.until(lambda: site.bindings(queue) == {("outbox", "user.created")}, "its binding again")


async def test_a_template_that_the_cluster_does_not_take_is_a_condition_that_names_the_field(
    site: Site,
) -> None:
    # Our own schema leaves what is Kubernetes' to Kubernetes.
    relay = site.relay(replicas=1, template={"affinity": {"podAffinitee": {}}})
    site.make_secrets()
    site.api.create(relay)
    async with site.operating():
        said = await site.until_condition(relay, "WorkloadAvailable", "False", "Refused")
        assert ".spec.template.spec.affinity.podAffinitee: field not declared in schema" in said["message"]
        site.edit(relay, template={"affinity": None})
        await site.until(lambda: site.find("Deployment", "shop-relay"), "the relay's Deployment")
