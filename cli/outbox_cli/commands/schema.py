"""`outbox schema`: the table, for people who own their migrations."""

from typing import Annotated

import typer

from outbox import schema
from outbox.schema import DEFAULT_CHANNEL, Problem
from outbox.schema.plan import UpgradeStep
from outbox.table import DEFAULT_TABLE, TableName
from outbox_cli import screen
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import Channel, DatabaseUrl, Notify, Output, TableOption, table_name
from outbox_cli.commands.place import placed
from outbox_cli.commands.targets import table_target
from outbox_cli.failures import CommandError, in_our_words, run
from outbox_cli.messages import connected
from outbox_cli.screen import Format

app = typer.Typer(
    help="The outbox table: its SQL, made, checked or brought to the present.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command("print")
def print_sql(
    table: TableOption = DEFAULT_TABLE,
    channel: Channel = DEFAULT_CHANNEL,
    notify: Notify = True,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="For a table that exists already.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Print the SQL that makes the table, for a migration."""

    async def made() -> str:
        name = table_name(table)
        sql = schema.upgrade_sql if upgrade else schema.create_sql
        return sql(name, channel, notify=notify)

    sql = run(made())
    if output is Format.JSON:
        screen.show_json({"sql": sql})
    else:
        print(sql)


@app.command()
@placed()
def create(
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    channel: Channel = DEFAULT_CHANNEL,
    notify: Notify = True,
    output: Output = Format.TABLE,
) -> None:
    """Make the table with its indexes and triggers, or what is missing of the last two."""

    async def make() -> TableName:
        target = await table_target(place, url, table, channel, notify=notify)
        async with (
            connected(target.database) as connection,
            connection.transaction(isolation="read_committed"),
        ):
            await schema.create(connection, target.table, target.channel, notify=target.notify)
        return target.table

    _done(run(make()), "is there, with its indexes and triggers", output)


@app.command()
@placed()
def upgrade(
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    channel: Channel = DEFAULT_CHANNEL,
    notify: Notify = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the steps and their locks.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Bring an older table to the present in place, keeping every row.

    Prints each step with what it locks. A lock is waited for one second at a time, and indexes are built
    while others write.
    """

    def announce(steps: list[UpgradeStep]) -> None:
        if output is not Format.JSON:
            for step in steps:
                screen.say(f"{step.change}\n    locks: {step.lock}")

    async def bring() -> tuple[TableName, list[UpgradeStep], list[Problem]]:
        target = await table_target(place, url, table, channel, notify=notify)
        async with connected(target.database) as connection:
            try:
                async with connection.transaction(isolation="read_committed", readonly=True):
                    steps = await schema.plan_upgrade(
                        connection, target.table, target.channel, notify=target.notify
                    )
            except ValueError as error:
                raise CommandError(str(error)) from error
            announce(steps)
            if dry_run:
                return target.table, steps, []
            for step in steps:
                await connection.execute(step.sql)
            async with connection.transaction(isolation="read_committed", readonly=True):
                problems = await schema.check(connection, target.table, target.channel, notify=target.notify)
            return target.table, steps, problems

    name, steps, problems = run(bring())
    if output is Format.JSON:
        told = [{"change": step.change, "lock": step.lock} for step in steps]
        screen.show_json({"table": name.sql, "steps": told, "problems": _told(problems)})
    elif problems:
        _say(problems)
    elif not dry_run or not steps:
        screen.say(f"table {name.sql} is as it should be")
    _exit_if_wrong(problems)


@app.command()
@placed()
def check(
    *,
    place: Place,
    url: DatabaseUrl = None,
    table: TableOption = DEFAULT_TABLE,
    channel: Channel = DEFAULT_CHANNEL,
    notify: Notify = True,
    output: Output = Format.TABLE,
) -> None:
    """Tell what is wrong with the table, each with its cure; exit code 1 where something is.

    Connect as the relay does: row-level security shows each role other rows.
    """

    async def judge() -> tuple[TableName, list[Problem]]:
        target = await table_target(place, url, table, channel, notify=notify)
        async with (
            connected(target.database) as connection,
            connection.transaction(isolation="read_committed", readonly=True),
        ):
            return target.table, await schema.check(
                connection, target.table, target.channel, notify=target.notify
            )

    name, problems = run(judge())
    if output is Format.JSON:
        screen.show_json(_told(problems))
    elif problems:
        _say(problems)
    else:
        screen.say(f"table {name.sql} is as it should be")
    _exit_if_wrong(problems)


def _told(problems: list[Problem]) -> list[dict[str, object]]:
    return [
        {
            "kind": problem.kind,
            "object": problem.object,
            "message": in_our_words(problem.message),
            "is_warning": problem.is_warning,
        }
        for problem in problems
    ]


def _say(problems: list[Problem]) -> None:
    for problem in problems:
        prefix = "warning: " if problem.is_warning else ""
        screen.say(f"{prefix}{in_our_words(problem.message)}")


def _exit_if_wrong(problems: list[Problem]) -> None:
    if not all(problem.is_warning for problem in problems):
        raise typer.Exit(1)


def _done(name: TableName, text: str, output: Format) -> None:
    if output is Format.JSON:
        screen.show_json({"table": name.sql})
    else:
        screen.say(f"table {name.sql} {text}")
