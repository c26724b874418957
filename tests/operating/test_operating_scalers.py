"""Replicas that a scaler owns: KEDA's on the Deployment, an HPA's on the resource itself."""

from typing import Any

import pytest

from tests.operator.pods import Pods, another_look
from tests.operator.site import Site

AUTOSCALED: dict[str, Any] = {"worker": {"image": "shop:1", "autoscaling": {"min": 0, "max": 5}}}


def scale(site: Site, path: str, name: str, replicas: int, manager: str) -> None:
    """Write to a scale subresource, as a scaler does."""
    body = {"metadata": {"name": name, "namespace": site.namespace}, "spec": {"replicas": replicas}}
    site.api.request("PUT", f"{path}/scale?fieldManager={manager}", body)


@pytest.mark.usefixtures("neighbours")
@pytest.mark.parametrize("replicas", [0, 4])
async def test_replicas_of_keda_outlast_rollouts_and_restarts(site: Site, replicas: int) -> None:
    listener = site.listener(handler="shop.mail:send", **AUTOSCALED)
    pods = Pods(site, listener)
    site.make_secrets()
    for each in (site.relay(), listener):
        site.api.create(each)
    async with site.operating(has_neighbours=True):
        await pods.until_made()
        path = site.path_of({"kind": "Deployment", "metadata": {"name": pods.name}})
        scale(site, path, pods.name, replicas, "keda")
        pods.roll_out()
        await site.until_condition(listener)
        # A rotated user rolls the pods.
        secret = pods.secret_name
        site.annotate(listener, rotate="now")
        await pods.until_another_secret(secret)
        assert pods.deployment["spec"]["replicas"] == replicas
        pods.roll_out()
        await site.until_condition(listener)
    async with site.operating(has_neighbours=True) as operator:
        await site.until(lambda: operator.world.queue.is_idle, "an operator with nothing to do")
        await another_look(site, operator, listener)
        assert pods.deployment["spec"]["replicas"] == replicas
        assert site.status(listener)["replicas"] == replicas


@pytest.mark.parametrize("kind", ["OutboxRelay", "OutboxListener"])
async def test_an_hpa_of_a_resource_is_obeyed_and_never_overruled(site: Site, kind: str) -> None:
    relay, listener = site.relay(replicas=1), site.listener(worker={"image": "shop:1", "replicas": 1})
    owner = relay if kind == "OutboxRelay" else listener
    pods = Pods(site, owner)
    site.make_secrets()
    for each in (relay, listener):
        site.api.create(each)
    async with site.operating() as operator:
        await pods.until_made()
        for replicas in (3, 0, 2):
            name = owner["metadata"]["name"]
            scale(site, site.path_of(owner), name, replicas, "horizontal-pod-autoscaler")
            await site.until(
                lambda: pods.deployment["spec"]["replicas"] == replicas,  # noqa: B023 - called here
                f"{replicas} replicas",
            )
            pods.roll_out()
            # An HPA reads the count and the selector from the resource.
            await site.until(
                lambda: site.status(owner).get("replicas") == replicas,  # noqa: B023 - called here
                f"{replicas} replicas in the status",
            )
            await another_look(site, operator, owner)
            live = site.get(owner)["spec"]
            assert (live if kind == "OutboxRelay" else live["worker"])["replicas"] == replicas
        assert site.status(owner)["selector"] == pods.selector
