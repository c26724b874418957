"""Two sides of a comparison, measured in turn: the median of the rounds' ratios counts."""

import statistics
from collections.abc import Sequence
from typing import Protocol

from bench.report import Figure


class Rated(Protocol):
    """Something that took its time."""

    @property
    def rate(self) -> float:
        """Messages a second."""


def rate(rounds: Sequence[Rated]) -> float:
    """That of the median round."""
    return statistics.median(each.rate for each in rounds)


def faster(what: str, ours: Sequence[Rated], baseline: Sequence[Rated], name: str, goal: float) -> Figure:
    """The rates of rounds that were measured in turn, against a goal for their ratio."""
    ratios = [mine.rate / theirs.rate for mine, theirs in zip(ours, baseline, strict=True)]
    ratio = statistics.median(ratios)
    return Figure(
        what,
        f"{rate(ours):,.0f}/s",
        f"{rate(baseline):,.0f}/s {name} (ratios {min(ratios):.2f}–{max(ratios):.2f})",
        ratio,
        f"≥ {goal:g} ×",
        ratio >= goal,
    )
