"""What an operator has done, by its own count."""

from collections.abc import Iterator
from typing import Any

from outbox_operator.operator import Operator
from tests.operator.site import Site

_WRITES = {"create", "update", "apply", "patch", "delete"}
_CALLS_OF_A_LOOK = 7


def samples(metric: Any) -> Iterator[tuple[dict[str, str], float]]:
    """The labels and values of a counter or gauge."""
    for family in metric.collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                yield sample.labels, sample.value


def api_writes(operator: Operator) -> float:
    """How often it wrote to the API server, or tried to."""
    calls = samples(operator.world.metrics.api_calls)
    return sum(value for labels, value in calls if labels["verb"] in _WRITES)


def watches_begun(operator: Operator) -> float:
    """How often it began to watch a Secret."""
    calls = samples(operator.world.metrics.api_calls)
    return sum(value for labels, value in calls if labels["verb"] == "watch")


def broker_writes(operator: Operator) -> float:
    """How often it changed something on a broker, or tried to."""
    calls = samples(operator.world.metrics.broker_calls)
    return sum(value for labels, value in calls if labels["method"] != "GET")


async def several_looks(site: Site, operator: Operator, looks: int = 3) -> None:
    """Wait until the broker, which has to be the only one, was looked at so many times more."""
    metrics = operator.world.metrics

    def seen() -> float:
        calls = samples(metrics.broker_calls)
        return sum(value for labels, value in calls if labels["method"] == "GET")

    # One look may be under way.
    enough = seen() + (looks + 1) * _CALLS_OF_A_LOOK
    await site.until(lambda: seen() >= enough, f"{looks} looks at the broker")
    await site.until(lambda: operator.world.queue.is_idle, "an idle operator")


async def several_passes(site: Site, operator: Operator, passes: int = 3) -> None:
    """Wait until a relay was looked at so many times more, and its broker too."""
    metrics = operator.world.metrics

    def seen() -> float:
        counts = samples(metrics.reconciles)
        return sum(value for labels, value in counts if labels["kind"] == "OutboxRelay")

    enough = seen() + passes
    await site.until(lambda: seen() >= enough, f"{passes} looks at a relay")
    await several_looks(site, operator, passes)
