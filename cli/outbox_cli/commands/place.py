"""Where a command looks: at URLs, or at the resources of a cluster."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from outbox_cli.cluster.place import PLUGIN, Place

PANEL = "In a cluster, instead of URLs"
"""Where the help shows the options by which people name a cluster."""

_OPTIONS: dict[str, Any] = {
    "namespace": Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            rich_help_panel=PANEL,
            help="Find databases and brokers through the resources there, and queues by OutboxListeners.",
        ),
    ],
    "relay": Annotated[
        str | None,
        typer.Option(
            "--relay", rich_help_panel=PANEL, help="The OutboxRelay, where the namespace has several."
        ),
    ],
    "context": Annotated[
        str | None, typer.Option("--context", rich_help_panel=PANEL, help="A context of the kubeconfig.")
    ],
    "kubeconfig": Annotated[
        str | None,
        typer.Option("--kubeconfig", rich_help_panel=PANEL, help="As of kubectl: KUBECONFIG by default."),
    ],
}


def placed(*, by_relay: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options by which people name a cluster; it gets what they say as `place`.

    Without `by_relay` the names in its arguments lead to the relay.
    """
    options = {name: each for name, each in _OPTIONS.items() if by_relay or name != "relay"}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_place(invocation: typer.Context, **given: Any) -> None:
            named = {name: given.pop(name) for name in options}
            command(place=Place(**named, program=_program(invocation), given=_given(invocation)), **given)

        # What typer reads.
        with_place.__signature__ = _signature(command, options)  # type: ignore[attr-defined]
        return with_place

    return decorate


def _signature(command: Callable[..., None], options: dict[str, Any]) -> inspect.Signature:
    """What the command takes, with the options instead of `place`."""
    own = inspect.signature(command)
    first, last = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return own.replace(
        parameters=[
            inspect.Parameter("invocation", first, annotation=typer.Context),
            *(each for each in own.parameters.values() if each.name != "place"),
            *(inspect.Parameter(name, last, default=None, annotation=each) for name, each in options.items()),
        ]
    )


def _program(invocation: typer.Context) -> str:
    return PLUGIN if invocation.find_root().info_name == PLUGIN else "outbox"


def _given(invocation: typer.Context) -> frozenset[str]:
    """What was typed, and is neither a default nor from the environment."""
    sources = {name: invocation.get_parameter_source(name) for name in invocation.params}
    return frozenset(name for name, source in sources.items() if source and source.name == "COMMANDLINE")
