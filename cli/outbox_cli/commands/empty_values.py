"""Refuses empty values: a script's unset variable must never mean "everything"."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand

MAY_BE_EMPTY = frozenset({"body"})
"""Parameters of which an empty text is a value like any other."""


class NonEmptyCommand(TyperCommand):
    """A command whose options and arguments are left out or have a value; an empty one is a usage error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            # The texts as typed: a converted value may hide that it was empty, as a path does.
            typed, _, _ = self.make_parser(ctx).parse_args(list(args))
            params: list[Any] = [*self.get_params(ctx)]
            for param in params:
                if param.name not in MAY_BE_EMPTY and has_empty(typed.get(param.name)):
                    cure = "give a value" if param.required else "give a value, or leave it out"
                    raise typer.BadParameter(
                        f"it is empty, as an unset variable of a shell is; {cure}", ctx=ctx, param=param
                    )
        return super().parse_args(ctx, args)


def has_empty(typed: object) -> bool:
    """True if a typed value, or one of several, consists of nothing but white space."""
    match typed:
        case str():
            return not typed.strip()
        case list() | tuple():
            values: Iterable[object] = typed
            return any(map(has_empty, values))
        case _:
            return False


def refuse_empty_values(*apps: typer.Typer) -> None:
    """Have every command of these refuse them, unless it reads its arguments itself."""
    for app in apps:
        for command in app.registered_commands:
            if command.cls is TyperCommand:
                command.cls = NonEmptyCommand
