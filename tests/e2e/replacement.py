"""Pods of a relay or listener that make room for others."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.e2e.kubectl import Manifest, until
from tests.e2e.shop import Shop


@contextmanager
def replaced(shop: Shop, *resources: str) -> Iterator[None]:
    """Wait until all pods that these have at first are gone, and as many others are ready in their place."""
    before = {resource: _pods(shop, resource) for resource in resources}
    yield
    for resource, pods in before.items():
        until(f"all pods of {resource} are others", partial(_has_only_others, shop, resource, _uids(pods)))


def _has_only_others(shop: Shop, resource: str, old: set[str]) -> bool:
    spec = shop.get(resource)["spec"]
    wanted = spec["worker"]["replicas"] if "worker" in spec else spec["replicas"]
    now = _pods(shop, resource)
    return len(now) == wanted and all(map(_is_ready, now)) and old.isdisjoint(_uids(now))


def _pods(shop: Shop, resource: str) -> list[Manifest]:
    """Those that are about to go included."""
    selector = shop.get(resource)["status"]["selector"]
    found: list[Manifest] = shop.get("pods", f"--selector={selector}")["items"]
    return found


def _uids(pods: list[Manifest]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
