"""The `outbox` command: its groups, and how it begins."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from outbox_cli import screen
from outbox_cli.cluster.place import PLUGIN
from outbox_cli.commands import (
    demo,
    dev,
    dlq,
    emit,
    listeners,
    messages,
    parts,
    schema,
    status,
    tail,
    topology,
)
from outbox_cli.commands.empty_values import refuse_empty_values
from outbox_core import logs

app = typer.Typer(
    name="outbox",
    help="Look after a transactional outbox: its table in Postgres, and its dead letters in RabbitMQ.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(schema.app, name="schema")
app.add_typer(messages.app, name="messages")
app.add_typer(dlq.app, name="dlq")
app.command()(dev.dev)
app.command()(demo.demo)
app.command()(status.status)
app.add_typer(listeners.app, name="listeners")
app.command()(topology.topology)
app.command()(emit.emit)
app.command()(tail.tail)
for part in (parts.relay, parts.worker, parts.operator):
    app.command(**parts.AS_ITS_MODULE)(part)
refuse_empty_values(app, schema.app, messages.app, dlq.app, listeners.app)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"outbox {version('outbox-operator')}")
        raise typer.Exit


@app.callback()
def _outbox(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and leave.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """What every command has in common."""


def main() -> None:
    """Run the command that the arguments ask for, and leave with its exit code."""
    # What the core logs of a lost connection is said once more, with the cure, by the command itself.
    logs.configure("ERROR")
    screen.degrade_symbols()
    app(prog_name=PLUGIN if Path(sys.argv[0]).stem.startswith("kubectl") else "outbox")
