"""The options that several commands have, and what they mean."""

from datetime import timedelta
from typing import Annotated, TypeAlias

import typer

from outbox.table import TableName
from outbox_cli import screen
from outbox_cli.failures import CommandError, fail
from outbox_cli.screen import Format
from outbox_core.broker import Broker
from outbox_core.environment import variable_of
from outbox_operator import durations

DATABASE_URL = "OUTBOX_DATABASE_URL"
BROKER_URL = "OUTBOX_BROKER_URL"


def _duration(text: str) -> timedelta:
    try:
        return durations.parse(text)
    except ValueError as error:
        # Of any other exception typer would not tell the text.
        raise typer.BadParameter(str(error)) from None


DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url", envvar=DATABASE_URL, help="The Postgres: postgresql://user:password@host/db"
    ),
]
BrokerUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--broker-url", envvar=BROKER_URL, help="The RabbitMQ: amqp://user:password@host/vhost"),
]
TableOption: TypeAlias = Annotated[
    str,
    typer.Option("--table", envvar=variable_of("table_name"), help="The outbox table, or schema.table."),
]
Channel: TypeAlias = Annotated[
    str,
    typer.Option("--channel", envvar=variable_of("channel"), help="Where the table's triggers notify."),
]
Notify: TypeAlias = Annotated[
    bool,
    typer.Option("--notify/--no-notify", help="Whether the table has triggers that notify a sleeping relay."),
]
Exchange: TypeAlias = Annotated[
    str,
    typer.Option("--exchange", envvar=variable_of("exchange_name"), help="The exchange of the relay."),
]
Modules: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="MODULE[:NAME]", help="As shop.listeners, or shop.listeners:book.")
]
Output: TypeAlias = Annotated[
    Format, typer.Option("--output", "-o", help="A table for people, or JSON for programs.")
]
OlderThan: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--older-than", parser=_duration, metavar="DURATION", help="As 90s, 5m or 1h30m."),
]
NewerThan: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--newer-than", parser=_duration, metavar="DURATION", help="As 90s, 5m or 1h30m."),
]
Expiration: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--expiration", parser=_duration, metavar="DURATION", help="How long it may wait for a listener."
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]


def database_url(given: str | None) -> str:
    """The URL of the database, which must be given."""
    if not given:
        raise CommandError(f"there is no database URL; give --database-url, or set {DATABASE_URL}")
    return given


def broker(given: str | None) -> Broker:
    """The broker, not connected yet, whose URL must be given."""
    if not given:
        raise CommandError(f"there is no broker URL; give --broker-url, or set {BROKER_URL}")
    try:
        return Broker(given, name="outbox command")
    except ValueError as error:
        raise CommandError(str(error)) from None


def table_name(given: str) -> TableName:
    """The table that is named."""
    try:
        return TableName.parse(given)
    except ValueError as error:
        raise CommandError(str(error)) from None


def agree(question: str, *, yes: bool) -> None:
    """Go on where a person agrees; else leave, with nothing done."""
    if yes:
        return
    match screen.confirmed(question):
        case True:
            return
        case False:
            fail("nothing was done")
        case None:
            fail("nothing was done, since nobody answered the question; pass --yes to do it unasked")


def plural(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
