"""An API server that answers with junk ends nothing, and what is odd about one object harms no other."""

import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any

import pytest
from aiohttp import web

from tests.operator.control_plane.faults import FaultyProxy, faulty_proxy
from tests.operator.junk import BODIES, EVENTS, ODD, paths, with_odd
from tests.operator.site import Site

# Whatever tells kopf which object it is about: without, it takes no object of the kind.
_IDENTITY = {"name", "namespace", "uid", "resourceVersion"}


@asynccontextmanager
async def far(site: Site) -> AsyncIterator[tuple[FaultyProxy, Site]]:
    """The site as an operator sees it that reaches the API server through a proxy."""
    async with faulty_proxy(site.identity.kubeconfig) as (proxy, kubeconfig):
        yield proxy, replace(site, identity=replace(site.identity, kubeconfig=kubeconfig))
    # The proxy's own connections, which end with the operator's.
    gc.collect()


def odd_objects(random: Random, *words: str) -> Callable[[web.Request, bytes], bytes]:
    """Puts an odd value somewhere into each object with one of these words in its name."""

    def changed(manifest: Any) -> Any:
        if not isinstance(manifest, dict):
            return manifest
        if isinstance(items := manifest.get("items"), list):
            return {**manifest, "items": [changed(item) for item in items]}
        if isinstance(found := manifest.get("object"), dict):
            return {**manifest, "object": changed(found)}
        metadata = manifest.get("metadata") or {}
        if not any(word in metadata.get("name", "") for word in words):
            return manifest
        ways = [
            path
            for path in paths(manifest)
            if path != ("metadata",) and not (path[0] == "metadata" and path[1] in _IDENTITY)
        ]
        return with_odd(manifest, random.choice(ways), random.choice(ODD))

    def alter(_: web.Request, given: bytes) -> bytes:
        try:
            return json.dumps(changed(json.loads(given))).encode() + b"\n"
        except ValueError:
            return given

    return alter


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("seed", range(3))
async def test_odd_fields_of_one_resource_and_its_children_harm_no_other(
    site: Site, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    odd, well = site.relay("odd", replicas=1, exchange="odd"), site.relay("well", exchange="well")
    odd_mail = site.listener("odd-mail", relayRef={"name": "odd"}, worker={"image": "shop:1"})
    site.make_secrets()
    async with far(site) as (proxy, there):
        proxy.alter = odd_objects(Random(seed), "odd")  # noqa: S311 - no secret
        async with there.operating():
            for each in (odd, odd_mail, well):
                site.api.create(each)
            await site.until_condition(well)
            for number in range(10):
                site.annotate(odd, note=str(number))
                site.annotate(odd_mail, note=str(number))
                mail = site.listener(f"well-{number}", relayRef={"name": "well"})
                site.api.create(mail)
                await site.until_condition(mail)
            for each in (odd, odd_mail):
                assert site.condition(each) or "unexpected error" in caplog.text


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_nothing_that_the_api_server_answers_ends_the_operator(site: Site) -> None:
    relay, before, after = site.relay(), site.listener("before"), site.listener("after")
    site.make_secrets()
    async with far(site) as (proxy, there):
        answered = 0
        bodies, events = cycle(BODIES), cycle(EVENTS)

        def junk(request: web.Request) -> bytes:
            nonlocal answered
            answered += 1
            return next(events) + b"\n" if request.query.get("watch") == "true" else next(bodies)

        async with there.operating():
            for each in (relay, before):
                site.api.create(each)
                await site.until_condition(each)
            proxy.instead = junk
            # The watches that were open begin anew.
            await proxy.close()
            site.annotate(before, note="x")
            await site.until(lambda: answered > len(BODIES), "calls that were answered with junk")
            proxy.instead = lambda _: None
            site.api.create(after)
            await site.until_condition(after)
