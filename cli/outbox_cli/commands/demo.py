"""`outbox demo`: half a minute of the shop example, and an account of it."""

from typing import Annotated

import typer

from outbox_cli.commands.dev import ManagementUrl, PostgresUrl, RabbitMQUrl, given_urls
from outbox_cli.commands.options import Output
from outbox_cli.screen import Format


def demo(
    *,
    orders: Annotated[
        int, typer.Option("--orders", min=10, help="How many orders are begun; tens are rounded down.")
    ] = 40,
    per_second: Annotated[
        float, typer.Option("--per-second", min=0.1, help="How many orders are begun in a second.")
    ] = 5.0,
    remind_after: Annotated[
        float, typer.Option("--remind-after", min=0, help="Seconds from an order to its reminder.")
    ] = 10.0,
    database_url: PostgresUrl = None,
    broker_url: RabbitMQUrl = None,
    management_url: ManagementUrl = None,
    output: Output = Format.TABLE,
) -> None:
    """See the whole way of messages in half a minute: a small shop, on a private Postgres and RabbitMQ.

    Orders are placed in transactions, and every second one is rolled back. One listener books them exactly
    once, one sends mail and fails twice, one reminds customers later, and one cannot charge cards: its dead
    letters are sent to it again when it is mended. The exit code is 0 only if in the end all of it adds up.
    """
    from outbox_cli.demo.performance import perform
    from outbox_cli.demo.story import Pace

    given = given_urls(database_url, broker_url, management_url)
    perform(Pace(orders - orders % 10, per_second, remind_after), given, output)
