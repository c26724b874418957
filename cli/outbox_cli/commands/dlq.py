"""`outbox dlq`: what listeners could not handle."""

from dataclasses import replace
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
from outbox_cli.failures import CommandError, Partial, fail, run
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
                census = Census()
                walked = await redrive.survey(
                    target.broker, target.letters, Selection(), None, sample=sample, on_found=census.add
                )
                found.append((target.letters, depth, walked, census))
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
        found: list[DeadLetter] = []
        async with queue_targets(place, url, [queue]) as [target]:
            walked = await redrive.survey(
                target.broker, target.letters, selection, limit, on_found=found.append
            )
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
    done: dict[str, Walked] = {}

    async def work() -> None:
        async with queue_targets(place, url, queues) as targets:
            for target in targets:
                connected, queue, letters = target.broker, target.queue, target.letters
                if dry_run:
                    done[queue] = await redrive.survey(
                        connected, letters, selection, limit, on_found=lambda _: None
                    )
                    continue
                walked = done[queue] = Walked()
                depth = await connected.depth(letters)
                with screen.progress(queue, depth, quiet=quiet) as advance:
                    await redrive.redrive(
                        connected,
                        (queue, letters),
                        selection=selection,
                        limit=limit,
                        rate=rate,
                        walked=walked,
                        on_progress=advance,
                    )

    def summarize() -> None:
        _summarize(done, "redriven", dry_run=dry_run, output=output)

    rest = (
        "nothing is lost: what was not redriven is in its dead-letter queue, and the last few may be in both"
    )
    run(work(), Partial(summarize, lambda: _has_begun(done), rest))
    summarize()
    _tell_problems(done, ids)


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

    counted: dict[str, set[int]] = {}
    done: dict[str, Walked] = {}

    async def count() -> dict[str, Walked]:
        found: dict[str, Walked] = {}
        async with queue_targets(place, url, queues) as targets:
            for each in targets:
                fingerprints = counted[each.letters] = set()

                def keep(letter: DeadLetter, kept: set[int] = fingerprints) -> None:
                    kept.add(letter.fingerprint)

                found[each.letters] = await redrive.survey(
                    each.broker, each.letters, selection, limit, on_found=keep
                )
        return found

    async def delete() -> None:
        async with queue_targets(place, url, queues) as targets:
            for target in targets:
                letters, meant = target.letters, matched[target.letters]
                # What has failed since the count is not what was asked about.
                only = replace(selection, among=counted[letters])
                walked = done[letters] = Walked()
                with screen.progress(letters, meant.looked_at, quiet=quiet) as advance:
                    await redrive.purge(
                        target.broker, letters, only, meant.done, walked=walked, on_progress=advance
                    )

    def summarize() -> None:
        _summarize(done, "deleted", dry_run=dry_run, output=output, matched=matched)

    matched = run(count())
    total = sum(walked.done for walked in matched.values())
    if dry_run or not total:
        _summarize(matched, "deleted", dry_run=dry_run, output=output)
        _tell_problems(matched, ids)
        return
    agree(
        f"Delete {plural(total, 'dead letter')} of {', '.join(matched)}, which no listener has handled?",
        yes=yes,
    )
    rest = "what was not deleted is in its dead-letter queue as before"
    run(delete(), Partial(summarize, lambda: _has_begun(done), rest))
    summarize()
    _tell_problems(matched, ids)


def _selection(
    ids: list[str] | None, error: str | None, older_than: timedelta | None, newer_than: timedelta | None
) -> Selection:
    now = datetime.now(UTC)
    return Selection.at(now, ids=ids or (), error=error, older_than=older_than, newer_than=newer_than)


def _has_begun(done: dict[str, Walked]) -> bool:
    return any(walked.done for walked in done.values())


def _summarize(
    done: dict[str, Walked],
    verb: str,
    *,
    dry_run: bool,
    output: Format,
    matched: dict[str, Walked] | None = None,
) -> None:
    """Print what was done to each queue; `matched` is what was counted before, in a walk of its own."""
    counts = {queue: walked.done + len(walked.refused) for queue, walked in (matched or done).items()}
    if output is Format.JSON:
        screen.show_json(
            [
                {
                    "queue": queue,
                    "looked_at": walked.looked_at,
                    "matched": counts[queue],
                    verb: 0 if dry_run else walked.done,
                    "refused": walked.refused,
                    "unreadable": len(walked.unreadable),
                }
                for queue, walked in done.items()
            ]
        )
        return
    for queue, walked in done.items():
        would = "would be " if dry_run else ""
        gone = counts[queue] - walked.done - len(walked.refused)
        since = f", and {gone:,} of the {counts[queue]:,} counted were not found again" if gone else ""
        rest = max(0, walked.read - walked.done - len(walked.refused))
        left = f", {rest:,} of those looked at left as they were" if rest else ""
        screen.say(f"{queue}: {plural(walked.done, 'dead letter')} {would}{verb}{since}{left}")


def _tell_problems(done: dict[str, Walked], ids: list[str] | None) -> None:
    """Print what was not done, and leave with exit code 1 unless all that was named was found."""
    _tell_unreadable(*done.values())
    lines = [line for walked in done.values() for line in walked.refused]
    missing = set(ids or ()).intersection(*(walked.missing_ids for walked in done.values()))
    if missing:
        named = ", ".join(sorted(missing))
        lines.append(f"no dead letter of {', '.join(done)} has the id {named}; see `outbox dlq show`")
    if lines:
        fail(*lines)


def _tell_unreadable(*walks: Walked) -> None:
    for reason in [reason for walked in walks for reason in walked.unreadable]:
        screen.warn(f"a dead letter cannot be read and stays, because {reason}")


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
