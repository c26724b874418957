"""`outbox status`: how relays and listeners are doing."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer

from outbox.table import DEFAULT_TABLE
from outbox_cli import screen
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import (
    BROKER_URL,
    DATABASE_URL,
    BrokerUrl,
    DatabaseUrl,
    Exchange,
    Output,
    TableOption,
    table_name,
)
from outbox_cli.commands.place import PANEL, placed
from outbox_cli.failures import CommandError, run
from outbox_cli.screen import Format
from outbox_cli.status.findings import Finding, findings
from outbox_cli.status.from_urls import Urls, picture_of_urls
from outbox_cli.status.picture import Picture, QueueState, ResourceState, TableState

SOMETHING_WRONG = 2
"""The exit code where something looks wrong."""


@placed(by_relay=False)
def status(
    *,
    place: Place,
    database: DatabaseUrl = None,
    broker: BrokerUrl = None,
    table: TableOption = DEFAULT_TABLE,
    exchange: Exchange = "outbox",
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", metavar="QUEUE", help="A listener's queue; without any, all of the exchange."
        ),
    ] = None,
    management: Annotated[
        str | None,
        typer.Option(
            "--management-url",
            help="The management API, which lists the queues; by default at port 15672 of the broker's host.",
        ),
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", rich_help_panel=PANEL, help="All namespaces.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show tables, queues, delay tiers and dead letters, and what looks wrong with its cure.

    Exit code 0 where nothing looks wrong, 2 where something does, 1 where something could not be looked at.
    """
    place = replace(place, everywhere=everywhere)

    async def look() -> Picture:
        if place.in_cluster:
            # Costs a second: only where it is used.
            from outbox_cli.status.from_cluster import picture_of_cluster

            typed = place.typed("database", database), place.typed("broker", broker)
            return await picture_of_cluster(place, *typed)
        if not (database or broker):
            raise CommandError(
                f"there is nothing to look at; give --database-url and --broker-url, set {DATABASE_URL} and "
                f"{BROKER_URL}, or name a cluster's namespace with -n"
            )
        urls = Urls(database, broker, management, table_name(table), exchange, queues or ())
        return await picture_of_urls(urls)

    picture = run(look())
    wrong = findings(picture, place)
    if output is Format.JSON:
        screen.show_json({**asdict(picture), "findings": wrong})
    else:
        _show(picture, wrong)
    for line in (*picture.notes, *picture.unseen):
        screen.warn(line)
    if picture.unseen:
        raise typer.Exit(1)
    if wrong:
        raise typer.Exit(SOMETHING_WRONG)


def _show(picture: Picture, wrong: list[Finding]) -> None:
    relays = [(each.resource, _table_cells(each.table)) for each in picture.relays if each.table]
    queues = [(each.resource, _queue_cells(each)) for each in picture.queues]
    _show_part("RELAY", ("TABLE", "PENDING", "DELAYED", "OLDEST", "PARKED"), relays)
    _show_part("LISTENER", ("QUEUE", "WAITING", "CONSUMERS", "DLQ"), queues)
    _show_part("", ("DELAY TIER", "WAITING"), [(None, (each.name, each.waiting)) for each in picture.tiers])
    if wrong:
        screen.say("What looks wrong:")
        for finding in wrong:
            screen.say(f"- {finding.line}")
    elif relays or queues:
        screen.say("nothing looks wrong")
    elif not picture.unseen:
        screen.say("there is nothing here")


def _show_part(
    kind: str,
    headings: tuple[str, ...],
    rows: Sequence[tuple[ResourceState | None, tuple[object, ...]]],
) -> None:
    """A table of what there is; resources have columns for what the operator says of them."""
    if not rows:
        return
    if all(resource for resource, _ in rows):
        headings = (kind, "READY", "REASON", "PODS", *headings)
    screen.show_table(headings, [(*_resource_cells(resource), *cells) for resource, cells in rows])
    print()


def _resource_cells(resource: ResourceState | None) -> tuple[object, ...]:
    return (resource.path, resource.ready, resource.reason, resource.pods) if resource else ()


def _table_cells(table: TableState) -> tuple[object, ...]:
    oldest = "" if table.oldest_seconds is None else screen.age(table.oldest_seconds)
    return table.name, _number(table.pending), _number(table.delayed), oldest, _number(table.parked)


def _queue_cells(queue: QueueState) -> tuple[object, ...]:
    waiting = "missing" if queue.is_missing else _number(queue.waiting)
    return queue.queue, waiting, _number(queue.consumers), _number(queue.dead_letters)


def _number(value: int | None) -> object:
    return "" if value is None else value
