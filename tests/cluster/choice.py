"""Which cluster a run uses: a decision over what was asked for and what works here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

CHOICES = "auto|local|kind|KUBECONFIG"


@dataclass(frozen=True)
class Given:
    """A cluster that somebody else runs."""

    kubeconfig: Path


@dataclass(frozen=True)
class Kind:
    """A node in a Docker container."""


@dataclass(frozen=True)
class Local:
    """A node on this machine."""


Source: TypeAlias = Given | Kind | Local


def choose(asked: str, kind_works: Callable[[], bool]) -> Source:
    """What was asked for by name or by its kubeconfig; `auto` is kind where it works, and else local."""
    match asked:
        case "local":
            return Local()
        case "kind":
            return Kind()
        case "auto":
            return Kind() if kind_works() else Local()
        case _:
            return Given(Path(asked))
