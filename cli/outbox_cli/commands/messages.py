"""`outbox messages`: what is in the table."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any, TypeAlias, assert_never

import typer

from outbox.table import DEFAULT_TABLE
from outbox_cli import bodies, screen
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import (
    DatabaseUrl,
    DryRun,
    NewerThan,
    OlderThan,
    Output,
    TableOption,
    Yes,
    agree,
    plural,
)
from outbox_cli.commands.place import placed
from outbox_cli.commands.targets import TableTarget, table_target
from outbox_cli.failures import CommandError, Partial, fail, run
from outbox_cli.message_query import Query, State
from outbox_cli.messages import MessageLine, Messages, Retried, StoredMessage, connected
from outbox_cli.screen import Format

app = typer.Typer(
    help="The messages in the table: pending, delayed, parked or sent.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_LIST_LIMIT = 50
_LINE_FIELDS = tuple(field.name for field in fields(MessageLine))

RoutingKey: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--routing-key", "-k", metavar="PATTERN", help="As in a binding: * is a word, # any number of words."
    ),
]
States: TypeAlias = Annotated[
    list[State] | None, typer.Option("--state", "-s", help="In this state; may be given several times.")
]
Ids: TypeAlias = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Rows of the table.")]
Limit: TypeAlias = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")]


@app.command("list")
@placed()
def list_messages(
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    state: States = None,
    routing_key: RoutingKey = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = _LIST_LIMIT,
    output: Output = Format.TABLE,
) -> None:
    """List messages, the oldest first; without --state all that are not sent."""
    query = _query(
        state, Query().states, routing_key=routing_key, older_than=older_than, newer_than=newer_than
    )

    headings = ("ID", "STATE", "ROUTING KEY", "AGE", "ATTEMPTS", "DETAIL")
    shown: screen.Rows = screen.JsonRows() if output is Format.JSON else screen.TableRows(headings)

    async def show_all() -> BrokenPipeError | None:
        target = await table_target(place, url, table)
        left = limit
        async with connected(target.database) as connection:
            async for page in Messages(connection, target.table).pages(query, limit + 1):
                try:
                    shown.add([_row(line, output) for line in page[:left]])
                except BrokenPipeError as error:
                    return error
                left -= len(page)
        shown.end()
        if output is Format.TABLE and left == limit:
            screen.say("no such messages")
        elif output is Format.TABLE and left < 0:
            screen.say(f"… and more: --limit {limit * 10}, or narrow it down")
        return None

    if reader_gone := run(show_all()):
        raise reader_gone


@app.command()
@placed()
def show(
    number: Annotated[int, typer.Argument(metavar="ID", help="The row of the table.")],
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    output: Output = Format.TABLE,
) -> None:
    """Show everything about one message."""

    async def read() -> StoredMessage:
        target = await table_target(place, url, table)
        async with connected(target.database) as connection:
            found = await Messages(connection, target.table).one(number)
        if found is None:
            raise CommandError(
                f"table {target.table.sql} has no message {number}; it may have been sent and deleted since: "
                "see `outbox messages list`"
            )
        return found

    message = run(read())
    if output is Format.JSON:
        screen.show_json(_json(message))
    else:
        screen.show_fields(_fields(message))


@app.command()
@placed()
def retry(
    ids: Ids = None,
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    routing_key: RoutingKey = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Have the relay send parked messages again: those named, those that fit, or all of them.

    Their attempts count from zero, and the relay is woken up.
    """
    query = _query(
        None,
        (State.PARKED,),
        ids=tuple(ids or ()),
        routing_key=routing_key,
        older_than=older_than,
        newer_than=newer_than,
    )
    quiet = output is Format.JSON
    meant, retried = 0, Retried()

    async def work() -> None:
        nonlocal meant, retried
        target = await table_target(place, url, table)
        async with connected(target.database) as connection:
            messages = Messages(connection, target.table)
            if dry_run:
                meant = _at_most(await messages.count(query), limit)
                return
            found = await messages.ids(query, limit)
            meant = len(found)
            with screen.progress("sending again", meant, quiet=quiet) as advance:
                async for batch in messages.retry(query, found):
                    retried += batch
                    advance(retried.count)

    def summarize() -> None:
        if quiet:
            screen.show_json(
                {"matched": meant, "retried": retried.count, "held_by_timers": retried.held_by_timers}
            )
        elif dry_run:
            screen.say(f"{plural(meant, 'parked message')} would be sent again")
        else:
            screen.say(f"{plural(retried.count, 'message')} will be sent again")

    run(work(), Partial(summarize, lambda: retried != Retried(), "the others are parked as before"))
    summarize()
    _tell_missing(ids, meant, "is parked")
    if retried.held_by_timers:
        rows = ", ".join(map(str, retried.held_by_timers))
        fail(f"left as they are, since their timers have been set anew and are pending: {rows}; purge them")


@app.command()
@placed()
def purge(
    ids: Ids = None,
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    state: States = None,
    routing_key: RoutingKey = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete messages, after a question: parked ones, unless --state says otherwise."""
    query = _query(
        state,
        (State.PARKED,),
        ids=tuple(ids or ()),
        routing_key=routing_key,
        older_than=older_than,
        newer_than=newer_than,
    )
    quiet = output is Format.JSON
    kinds = " or ".join(query.states)
    meant = deleted = 0

    async def find() -> "tuple[TableTarget, array[int]]":
        nonlocal meant
        target = await table_target(place, url, table)
        async with connected(target.database) as connection:
            messages = Messages(connection, target.table)
            if dry_run:
                meant = _at_most(await messages.count(query), limit)
                return target, array("q")
            found = await messages.ids(query, limit)
            meant = len(found)
            return target, found

    async def delete(target: TableTarget, found: "array[int]") -> None:
        nonlocal deleted
        async with connected(target.database) as connection:
            with screen.progress("deleting", meant, quiet=quiet) as advance:
                async for count in Messages(connection, target.table).purge(query, found):
                    deleted += count
                    advance(deleted)

    def summarize(*, is_whole: bool = False) -> None:
        if quiet:
            screen.show_json({"matched": meant, "deleted": deleted})
        elif dry_run:
            screen.say(f"{plural(meant, f'{kinds} message')} would be deleted")
        else:
            left = meant - deleted if is_whole else 0
            is_left = "is" if left == 1 else "are"
            changed = f", and {left:,} left, which {is_left} no longer {kinds} or {is_left} being sent"
            screen.say(f"{plural(deleted, 'message')} deleted{changed if left else ''}")

    target, found = run(find())
    # What matches by the time of the answer and did not before is not what was asked about, nor is another
    # table to which a resource or a context leads by then.
    if found:
        lost = "" if State.PARKED in query.states or State.SENT in query.states else ", which nobody has got"
        agree(f"Delete {plural(meant, f'{kinds} message')}{lost}?", yes=yes)
        run(
            delete(target, found),
            Partial(summarize, lambda: deleted > 0, "the others are in the table as before"),
        )
    summarize(is_whole=True)
    _tell_missing(ids, meant, f"is {kinds}")


def _query(
    states: Sequence[State] | None,
    default: tuple[State, ...],
    **others: Any,
) -> Query:
    return Query(tuple(dict.fromkeys(states)) if states else default, **others)


def _at_most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)


def _tell_missing(ids: Sequence[int] | None, meant: int, what: str) -> None:
    if ids and meant < len(set(ids)):
        fail(f"only {meant} of the {len(set(ids))} rows that were named {what}; see `outbox messages show`")


def _row(line: MessageLine, output: Format) -> Any:
    return _finite(_values(line)) if output is Format.JSON else _cells(line)


def _values(line: MessageLine) -> dict[str, object]:
    # Not `asdict`, whose deep copies take longer than all the rest of a long list.
    return {name: getattr(line, name) for name in _LINE_FIELDS}


def _finite(values: dict[str, object]) -> dict[str, object]:
    """The values with None for an infinite number, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def _cells(line: MessageLine) -> tuple[object, ...]:
    age = screen.age(line.age_seconds)
    return line.id, line.state, line.routing_key, age, line.attempts, _detail(line)


def _detail(line: MessageLine) -> str:
    match line.state:
        case State.DELAYED:
            wait = "never" if line.due_seconds == float("inf") else f"in {screen.age(line.due_seconds)}"
            return f"due {wait}" + (f": {line.last_error}" if line.last_error else "")
        case State.PENDING | State.PARKED:
            return line.last_error or ""
        case State.SENT:
            return ""
        case _:
            assert_never(line.state)


def _fields(message: StoredMessage) -> dict[str, object]:
    line = message.line
    return {
        "id": line.id,
        "state": line.state,
        "routing key": line.routing_key,
        "message id": message.message_id,
        "emitted": message.created_at,
        "due": message.send_after,
        "sent": message.sent_at,
        "parked": message.parked_at,
        "expiration": _expiration(message.expiration_seconds),
        "ordering key": message.ordering_key,
        "timer": message.timer_id,
        "attempts": line.attempts,
        "last error": line.last_error,
        "content type": message.content_type or "application/json",
        "tracking ids": ", ".join(map(str, message.tracking_ids or ())),
        **{f"header {name}": value for name, value in (message.headers or {}).items()},
        "body": bodies.readable(message.body),
    }


def _expiration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        return str(timedelta(seconds=seconds))
    except (OverflowError, ValueError):
        # Longer than Python's longest, or infinite.
        return screen.age(seconds)


def _json(message: StoredMessage) -> dict[str, object]:
    values: dict[str, object] = {
        **_values(message.line),
        "message_id": message.message_id,
        "created_at": message.created_at,
        "send_after": message.send_after,
        "sent_at": message.sent_at,
        "parked_at": message.parked_at,
        "expiration_seconds": message.expiration_seconds,
        "ordering_key": message.ordering_key,
        "timer_id": message.timer_id,
        "content_type": message.content_type,
        "tracking_ids": message.tracking_ids,
        "headers": message.headers,
        "body": bodies.as_json(message.body),
    }
    return _finite(values)
