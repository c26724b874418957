"""What a person has to mend, in one line with the cure, instead of a traceback."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import asyncpg
import typer

from outbox_cli import screen
from outbox_core import loop
from outbox_core.broker_errors import BrokerError
from outbox_core.database import DatabaseError
from outbox_core.environment import leaves, one_line
from outbox_core.masking import mask

T = TypeVar("T")

INTERRUPTED = 130
"""The exit code after Ctrl-C, as of a shell."""


class CommandError(Exception):
    """Why the command cannot do what it was asked for, and what to do next."""


_TOLD = (CommandError, DatabaseError, BrokerError, asyncpg.PostgresError, OSError)
"""What comes from the outside. Everything else is a fault of ours, and keeps its traceback."""

_IN_OUR_WORDS = {
    "outbox.schema.create_sql()": "`outbox schema create`",
    "outbox.schema.upgrade_sql()": "`outbox schema upgrade`",
    "the operator may not": "you may not",
    "add that to its Role": "have that added to a Role of yours",
    "add that to its ClusterRole": "have that added to a ClusterRole of yours",
    "run in a pod with a service account, or set KUBECONFIG to": "set KUBECONFIG, or --kubeconfig, to",
}


@dataclass(frozen=True, slots=True)
class Partial:
    """What to print of work that an error or Ctrl-C ends before all of it is done."""

    summarize: Callable[[], None]
    """Prints what was done so far."""
    has_begun: Callable[[], bool]
    """Whether anything was; without that an error stands alone."""
    rest: str
    """What became of the rest."""


def run(work: Coroutine[Any, Any, T], partial: Partial | None = None) -> T:
    """Run `work` to its end; what a person has to mend is told, and ends the command with exit code 1.

    With `partial`, what was done before an error or Ctrl-C is summarized; Ctrl-C is exit code 130.
    """
    problems: list[BaseException] = []
    try:
        try:
            return loop.run(work)
        except* _TOLD as group:
            problems = leaves(group)
    except KeyboardInterrupt:
        if partial is None:
            raise
        partial.summarize()
        screen.warn(f"interrupted; {partial.rest}")
        raise typer.Exit(INTERRUPTED) from None
    if partial and partial.has_begun():
        partial.summarize()
    # Several tasks may have met the same one.
    return fail(*dict.fromkeys(map(line_of, problems)))


def fail(*lines: str) -> NoReturn:
    """Tell, and leave with exit code 1."""
    for line in lines:
        screen.warn(line)
    raise typer.Exit(1)


def line_of(problem: BaseException) -> str:
    """The problem with its cure, on one line and without passwords."""
    return mask(in_our_words(_with_cure(problem)))


def in_our_words(text: str) -> str:
    """The text with the command or the option where others name a function, a field or the operator."""
    for theirs, ours in _IN_OUR_WORDS.items():
        text = text.replace(theirs, ours)
    return text


def _with_cure(problem: BaseException) -> str:
    text = one_line(problem) or type(problem).__name__
    match problem:
        case asyncpg.UndefinedTableError():
            return f"{text}; run `outbox schema create`, or name the table with --table"
        case asyncpg.UndefinedColumnError() | asyncpg.UndefinedFunctionError():
            return f"{text}; run `outbox schema check`, and then `outbox schema upgrade`"
        case asyncpg.InsufficientPrivilegeError():
            return f"{text}; grant the user of the database URL this right, or use another user"
        case asyncpg.PostgresError(hint=str() as hint):
            # Postgres' own exception shows the hint on a line of its own, with a label.
            return f"{problem.args[0]}; {hint[0].lower()}{hint[1:].rstrip('.')}"
        case TimeoutError():
            return "the server did not answer in time; try again, or look at what keeps it busy"
        case _:
            return text
