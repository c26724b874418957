"""`outbox emit`: one message by hand."""

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from outbox import Emitter
from outbox.message import Eta
from outbox.table import DEFAULT_TABLE
from outbox_cli import bodies, screen
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import DatabaseUrl, Expiration, Output, TableOption
from outbox_cli.commands.place import placed
from outbox_cli.commands.targets import table_target
from outbox_cli.failures import CommandError, fail, run
from outbox_cli.messages import connected
from outbox_cli.screen import Format
from outbox_operator import durations

_EMIT_SECONDS = 30.0


@placed()
def emit(
    routing_key: Annotated[str, typer.Argument(metavar="KEY", help="The routing key, as order.placed.")],
    body: Annotated[
        str,
        typer.Argument(metavar="BODY", help="JSON, or else a text; - reads stdin, @FILE a file."),
    ],
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be given several times."),
    ] = None,
    eta: Annotated[
        str | None,
        typer.Option(
            "--eta",
            "--delay",
            metavar="WHEN",
            help="Due in 90s or 1h30m, or at 2030-12-24T18:00.",
        ),
    ] = None,
    expiration: Expiration = None,
    ordering_key: Annotated[
        str | None, typer.Option("--ordering-key", metavar="TEXT", help="Those with the same leave in order.")
    ] = None,
    timer_id: Annotated[
        str | None, typer.Option("--timer-id", metavar="TEXT", help="At most one with the same is pending.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Move the timer that is pending.")] = False,
    content_type: Annotated[
        str | None, typer.Option("--content-type", metavar="TYPE", help="The body is sent as it is written.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Emit one message in a transaction of its own, and print its id."""
    if replace and timer_id is None:
        fail("--replace moves a pending timer; name it with --timer-id")
    content, its_type = bodies.emitted(_read(body), content_type)
    due, named = _due(eta), _named(headers or ())

    async def write() -> UUID:
        target = await table_target(place, url, table)
        emitter = Emitter(table_name=target.table.sql)
        async with (
            connected(target.database) as connection,
            asyncio.timeout(_EMIT_SECONDS),
            connection.transaction(isolation="read_committed"),
        ):
            try:
                emitted = await emitter.emit(
                    connection,
                    routing_key,
                    content,
                    expiration=expiration,
                    eta=due,
                    headers=named,
                    ordering_key=ordering_key,
                    timer_id=timer_id,
                    replace=replace,
                    content_type=its_type,
                )
            except ValueError as error:
                # What the client says of a message that cannot be.
                raise CommandError(str(error)) from None
        if emitted is None:
            raise CommandError(
                f'timer "{timer_id}" of {routing_key} is pending already, and nothing was emitted; '
                "pass --replace to move it"
            )
        return emitted

    message_id = run(write())
    if output is Format.JSON:
        screen.show_json({"message_id": message_id, "routing_key": routing_key})
    else:
        print(message_id)


def _read(body: str) -> bytes:
    if body == "-":
        return sys.stdin.buffer.read()
    if not body.startswith("@"):
        return os.fsencode(body)
    try:
        return Path(body[1:]).read_bytes()
    except OSError as error:
        fail(
            f"file {body[1:]!r} cannot be read: {error.strerror}; "
            "correct the name, or pass - and write the body to stdin"
        )


def _due(text: str | None) -> Eta | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return durations.parse(text)
    except ValueError as error:
        fail(f"{error}; or a moment, such as 2030-12-24T18:00")


def _named(headers: Sequence[str]) -> dict[str, str] | None:
    for header in headers:
        if "=" not in header:
            fail(f"header {header!r} has no value; write NAME=VALUE")
    return {name: value for name, _, value in (header.partition("=") for header in headers)} or None
