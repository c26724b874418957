"""`outbox dlq`: what listeners could not handle."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

import typer

from outbox_cli import bodies, redrive, screen
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import (
    BrokerUrl,
    DryRun,
    NewerThan,
    OlderThan,
    Output,
    Yes,
    agree,
    plural,
)
from outbox_cli.commands.place import placed
from outbox_cli.commands.targets import queue_targets
from outbox_cli.dead_letters import Census, DeadLetter, Selection
from outbox_cli.failures import CommandError, fail, run
from outbox_cli.redrive import Walked
from outbox_cli.screen import Format

app = typer.Typer(
    help="The dead letters of a listener: what failed, why, how often, when; sent again, or deleted.\n\n"
    "QUEUE is the listener's queue, or its dead-letter queue; in a cluster, the OutboxListener. To look "
    "means to receive and to give back: the broker marks each message as redelivered, and counts. Our "
    "dead-letter queues allow a million of these; one that was declared otherwise on RabbitMQ 4 drops a "
    "message after twenty.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

QueueName: TypeAlias = Annotated[str, typer.Argument(metavar="QUEUE", help="The listener's queue.")]
Queues: TypeAlias = Annotated[list[str], typer.Argument(metavar="QUEUE", help="The listeners' queues.")]
Ids: TypeAlias = Annotated[
    list[str] | None, typer.Option("--id", metavar="MESSAGE_ID", help="This one; may be given several times.")
]
ErrorType: TypeAlias = Annotated[
    str | None, typer.Option("--error", metavar="TYPE", help="As ValueError, or shop.errors.CardDeclined.")
]
Limit: TypeAlias = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")]


@app.command("list")
@placed(by_relay=False)
def list_queues(
    queues: Queues,
    *,
    place: Place,
    url: BrokerUrl = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="Look at the first so many of each.")] = 1000,
    output: Output = Format.TABLE,
) -> None:
    """List what failed in each queue: the types of error, how many, the oldest and the newest."""

    async def count() -> list[tuple[str, int, Walked, Census]]:
        found = []
        async with queue_targets(place, url, queues) as targets:
            for target in targets:
                depth = await target.broker.depth(target.letters)
                census = await redrive.survey(target.broker, target.letters, Selection(), None, sample=sample)
                found.append((target.letters, depth, *census))
        return found

    counted = run(count())
    if output is Format.JSON:
        screen.show_json([_census_json(*each) for each in counted])
        return
    now = datetime.now(UTC)
    screen.show_table(
        ("QUEUE", "DEPTH", "ERROR", "COUNT", "OLDEST", "NEWEST"),
        [row for each in counted for row in _census_rows(*each, now)],
    )
    if any(walked.looked_at < depth for _, depth, walked, _ in counted):
        screen.say(f"errors are those of the first {plural(sample, 'dead letter')}; --sample looks at more")


@app.command()
@placed(by_relay=False)
def show(
    queue: QueueName,
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="The id of one message.")] = None,
    *,
    place: Place,
    url: BrokerUrl = None,
    error: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Show dead letters with their error, traceback and body: one by its id, or the first that fit."""
    selection = _selection([message_id] if message_id else None, error, older_than, newer_than)

    async def read() -> tuple[Walked, list[DeadLetter]]:
        async with queue_targets(place, url, [queue]) as [target]:
            walked, found = await redrive.look(target.broker, target.letters, selection, limit)
        if message_id and not found:
            raise CommandError(
                f'queue "{target.letters}" has no message {message_id}; see `outbox dlq show {queue}`'
            )
        return walked, found

    walked, letters = run(read())
    if output is Format.JSON:
        screen.show_json([_letter_json(letter) for letter in letters])
    elif not letters:
        screen.say("no such dead letters")
    else:
        for number, letter in enumerate(letters):
            if number:
                print()
            screen.show_fields(_fields(letter))
    _tell_unreadable(walked)


@app.command("redrive")
@placed(by_relay=False)
def redrive_letters(
    queues: Queues,
    *,
    place: Place,
    url: BrokerUrl = None,
    ids: Ids = None,
    error: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Messages a second.")] = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Send dead letters to their listener again: all, or those that fit.

    Each is confirmed in the listener's queue before it leaves the dead-letter queue: what is interrupted may
    come twice, and is never lost. It keeps its message id, and its attempts begin anew.
    """
    selection = _selection(ids, error, older_than, newer_than)
    quiet = output is Format.JSON

    async def work() -> dict[str, Walked]:
        done: dict[str, Walked] = {}
        async with queue_targets(place, url, queues) as targets:
            for target in targets:
                connected, queue, letters = target.broker, target.queue, target.letters
                if dry_run:
                    done[queue], _ = await redrive.survey(connected, letters, selection, limit)
                    continue
                depth = await connected.depth(letters)
                with screen.progress(queue, depth, quiet=quiet) as advance:
                    done[queue] = await redrive.redrive(
                        connected,
                        (queue, letters),
                        selection=selection,
                        limit=limit,
                        rate=rate,
                        on_progress=advance,
                    )
        return done

    _tell(run(work()), "redriven", ids, dry_run=dry_run, output=output)


@app.command()
@placed(by_relay=False)
def purge(
    queues: Queues,
    *,
    place: Place,
    url: BrokerUrl = None,
    ids: Ids = None,
    error: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete dead letters for ever, after a question: all, or those that fit."""
    selection = _selection(ids, error, older_than, newer_than)
    quiet = output is Format.JSON

    async def count() -> dict[str, Walked]:
        async with queue_targets(place, url, queues) as targets:
            return {
                each.letters: (await redrive.survey(each.broker, each.letters, selection, limit))[0]
                for each in targets
            }

    async def delete() -> dict[str, Walked]:
        done: dict[str, Walked] = {}
        async with queue_targets(place, url, queues) as targets:
            for target in targets:
                letters, walked = target.letters, meant[target.letters]
                # No more than was asked about, whatever has failed since.
                most = walked.done
                with screen.progress(letters, walked.looked_at, quiet=quiet) as advance:
                    done[letters] = await redrive.purge(target.broker, letters, selection, most, advance)
        return done

    meant = run(count())
    total = sum(walked.done for walked in meant.values())
    if dry_run or not total:
        _tell(meant, "deleted", ids, dry_run=dry_run, output=output)
        return
    agree(
        f"Delete {plural(total, 'dead letter')} of {', '.join(meant)}, which no listener has handled?",
        yes=yes,
    )
    _tell(run(delete()), "deleted", ids, dry_run=False, output=output)


def _selection(
    ids: list[str] | None, error: str | None, older_than: timedelta | None, newer_than: timedelta | None
) -> Selection:
    now = datetime.now(UTC)
    return Selection.at(now, ids=ids or (), error=error, older_than=older_than, newer_than=newer_than)


def _tell(
    done: dict[str, Walked], verb: str, ids: list[str] | None, *, dry_run: bool, output: Format
) -> None:
    if output is Format.JSON:
        screen.show_json(
            [
                {
                    "queue": queue,
                    "looked_at": walked.looked_at,
                    "matched": walked.done + len(walked.refused),
                    verb: 0 if dry_run else walked.done,
                    "refused": walked.refused,
                    "unreadable": len(walked.unreadable),
                }
                for queue, walked in done.items()
            ]
        )
    else:
        for queue, walked in done.items():
            would = "would be " if dry_run else ""
            rest = walked.looked_at - walked.done - len(walked.refused) - len(walked.unreadable)
            left = f", {rest:,} of those looked at left as they were" if rest else ""
            screen.say(f"{queue}: {plural(walked.done, 'dead letter')} {would}{verb}{left}")
    _tell_unreadable(*done.values())
    if refused := [line for walked in done.values() for line in walked.refused]:
        fail(*refused)
    if ids and not any(walked.done for walked in done.values()):
        fail("no dead letter has one of these ids; see `outbox dlq show`")


def _tell_unreadable(*walks: Walked) -> None:
    for reason in [reason for walked in walks for reason in walked.unreadable]:
        print(f"outbox: a dead letter cannot be read and stays, because {reason}", file=sys.stderr)


def _census_rows(
    queue: str, depth: int, walked: Walked, census: Census, now: datetime
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [
        (queue, depth, error, count.count, _age(count.oldest, now), _age(count.newest, now))
        for error, count in census.by_count()
    ]
    if walked.unreadable:
        rows.append((queue, depth, "(cannot be read)", len(walked.unreadable), "", ""))
    return rows or [(queue, depth, "", "", "", "")]


def _age(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else screen.age((now - moment).total_seconds())


def _census_json(queue: str, depth: int, walked: Walked, census: Census) -> dict[str, object]:
    errors = [
        {"type": error, "count": count.count, "oldest": count.oldest, "newest": count.newest}
        for error, count in census.by_count()
    ]
    return {
        "queue": queue,
        "depth": depth,
        "looked_at": walked.looked_at,
        "unreadable": len(walked.unreadable),
        "errors": errors,
    }


def _fields(letter: DeadLetter) -> dict[str, object]:
    return {
        "message id": letter.message_id,
        "routing key": letter.routing_key,
        "error": letter.error_type,
        "says": letter.error,
        "attempts": letter.attempts,
        "first failed": screen.moment(letter.first_failed_at),
        "last failed": screen.moment(letter.failed_at),
        "traceback": letter.traceback,
        "content type": letter.message.content_type,
        **{f"header {name}": value for name, value in letter.own_headers.items()},
        "body": bodies.readable(letter.message.body),
    }


def _letter_json(letter: DeadLetter) -> dict[str, object]:
    return {
        "message_id": letter.message_id,
        "routing_key": letter.routing_key,
        "error_type": letter.error_type,
        "error": letter.error,
        "traceback": letter.traceback,
        "attempts": letter.attempts,
        "first_failed_at": letter.first_failed_at,
        "failed_at": letter.failed_at,
        "content_type": letter.message.content_type,
        "headers": letter.own_headers,
        "body": bodies.as_json(letter.message.body),
    }
