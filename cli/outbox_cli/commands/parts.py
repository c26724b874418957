"""`outbox relay`, `outbox worker` and `outbox operator`: run a part, as its own module does."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from outbox_cli.failures import fail


class _Untouched(TyperCommand):
    """A command that leaves its arguments as they are: click would take the `--` away."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = args
        return args


AS_ITS_MODULE: dict[str, Any] = {"add_help_option": False, "cls": _Untouched}
"""How such a command is registered: the part reads its arguments itself, --help among them."""


def relay(context: typer.Context) -> None:
    """Run a relay, as `python -m outbox_relay` does: from the table to the broker."""
    _run("relay", context.args)


def worker(context: typer.Context) -> None:
    """Run the listeners of modules, as `python -m outbox_worker MODULE` does."""
    _run("worker", context.args)


def operator(context: typer.Context) -> None:
    """Run the operator, as `python -m outbox_operator` does, on the cluster of KUBECONFIG."""
    _run("operator", context.args)


def _run(part: str, arguments: list[str]) -> None:
    try:
        main: Callable[..., int] = import_module(f"outbox_{part}.__main__").main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("outbox"):
            raise
        fail(f"the {part} needs {error.name}; run pip install 'outbox-operator[{part}]'")
    raise typer.Exit(main(arguments=arguments))
