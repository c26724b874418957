"""Many listeners applied at once, before their relay or after it, against the broker's own cost of it."""

import random
import time
from dataclasses import dataclass

from bench.operator import floor
from bench.operator.process import Tally
from bench.operator.site import RELAY, Ground, Manifest, Site
from bench.operator.watch import Sight
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import progress

_MOST_SECONDS = 5.0
_MOST_WRITES = 3.0


@dataclass(frozen=True)
class Run:
    """What became of one `kubectl apply`."""

    apply_seconds: float
    """How long kubectl took."""
    seconds: float
    """From its return until all were ready."""
    cpu_seconds: float
    """CPU of the operator, from the beginning of the apply."""
    tally: Tally
    """What the operator did for it."""
    denied: int
    """Listeners that were not ready at some time."""
    falsely: int
    """Those that said so for another reason than that their relay was not there, or when it was."""


async def measure(ground: Ground, sizes: Sizes) -> Report:
    names = [f"listener-{number}" for number in range(sizes.applied)]
    progress(f"{sizes.applied} listeners and their relay applied in random order")
    shuffled = await _run(ground, names, is_relay_last=False)
    progress("the same with the relay at the end of the file")
    late = await _run(ground, names, is_relay_last=True)
    progress("the same queues and bindings on the broker alone")
    async with ground.site() as site:
        least = await floor.seconds_of(site, names)
    print(f"    {least:.1f} s, and kubectl alone took {late.apply_seconds:.1f} s", flush=True)
    beside = f"{least:.1f} s the broker's calls alone"
    return Report(
        [
            _settled(f"{sizes.applied} listeners applied, random order: all Ready", shuffled, beside),
            _settled("the same, the relay last", late, beside),
            _writes("API writes a listener, random order", shuffled, sizes.applied),
            _writes("the same, the relay last", late, sizes.applied),
            _falsely("listeners falsely not ready, random order", shuffled),
            _falsely("the same, the relay last", late),
        ]
    )


async def _run(ground: Ground, names: list[str], *, is_relay_last: bool) -> Run:
    async with (
        ground.site() as site,
        site.operating() as operator,
        site.watching() as watch,
        site.watching("outboxrelays") as relays,
    ):
        before, cpu = await operator.tally(), operator.cpu_seconds
        began = time.monotonic()
        await site.apply(_in_order(site, names, is_relay_last=is_relay_last))
        returned = time.monotonic()
        ready = await watch.until_all("all listeners are ready", names, lambda sight: sight.is_ready)
        await relays.until_all("the relay is ready", [RELAY], lambda sight: sight.is_ready)
        tally, cpu = await operator.settled_tally() - before, operator.cpu_seconds - cpu
        sights = [watch.sights[name] for name in names]
        run = Run(
            returned - began,
            max(ready - returned, 0.0),
            cpu,
            tally,
            sum(bool(sight.denials) for sight in sights),
            sum(_is_false(sight, relays.first_version) for sight in sights),
        )
    print(
        f"    kubectl {run.apply_seconds:.1f} s, then {run.seconds:.2f} s; operator's CPU {cpu:.1f} s; "
        f"{tally.api_writes:.0f} writes, {tally.broker_calls:.0f} broker calls; "
        f"{run.denied} were not ready at some time",
        flush=True,
    )
    return run


def _in_order(site: Site, names: list[str], *, is_relay_last: bool) -> list[Manifest]:
    listeners = [site.listener(name) for name in random.sample(names, len(names))]
    place = len(listeners) if is_relay_last else random.randint(0, len(listeners))  # noqa: S311 - no secret
    return [*listeners[:place], site.relay(), *listeners[place:]]


def _is_false(sight: Sight, relay_version: int) -> bool:
    return any(
        reason != "RelayMissing" or version > relay_version for version, reason in sight.denials.items()
    )


def _settled(what: str, run: Run, beside: str) -> Figure:
    return Figure(
        what,
        f"{run.seconds:.2f} s after the apply",
        f"{beside}, {run.apply_seconds:.1f} s kubectl",
        run.seconds,
        f"≤ {_MOST_SECONDS:g} s",
        run.seconds <= _MOST_SECONDS,
    )


def _writes(what: str, run: Run, count: int) -> Figure:
    each = run.tally.api_writes / count
    calls = f"{run.tally.broker_calls / count:.1f} broker calls"
    return Figure(what, f"{each:.2f}", calls, each, f"≤ {_MOST_WRITES:g}", each <= _MOST_WRITES)


def _falsely(what: str, run: Run) -> Figure:
    beside = f"{run.denied} said RelayMissing before it was applied" if run.denied > run.falsely else ""
    return Figure(what, f"{run.falsely}", beside, run.falsely, "0", run.falsely == 0)
