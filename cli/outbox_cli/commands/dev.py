"""`outbox dev`: a project's manifests on this machine."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from outbox_cli.commands.options import Output
from outbox_cli.local.choice import POSTGRES, RABBITMQ
from outbox_cli.local.services import MANAGEMENT_VARIABLE
from outbox_cli.screen import Format

PostgresUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--database-url", envvar=POSTGRES.variable, help="A Postgres, instead of a private one."),
]
RabbitMQUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--broker-url", envvar=RABBITMQ.variable, help="A RabbitMQ, instead of a private one."),
]
ManagementUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--management-url", envvar=MANAGEMENT_VARIABLE, help="Its HTTP API, where not at port 15672."
    ),
]


def given_urls(
    database_url: str | None, broker_url: str | None, management_url: str | None
) -> dict[str, str | None]:
    """The URLs of services that run already, by their variables."""
    return {
        POSTGRES.variable: database_url,
        RABBITMQ.variable: broker_url,
        MANAGEMENT_VARIABLE: management_url,
    }


def dev(
    filenames: Annotated[
        list[Path],
        typer.Option("--filename", "-f", help="A manifest, or a folder with manifests and code in it."),
    ],
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace, after which queues are called.")
    ] = "default",
    path: Annotated[
        list[Path] | None,
        typer.Option("--path", help="A folder to import listeners from, beside that of -f."),
    ] = None,
    database_url: PostgresUrl = None,
    broker_url: RabbitMQUrl = None,
    management_url: ManagementUrl = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the data of private services for the next time.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Run a project on this machine as a cluster would: relays and workers, from the same manifests.

    Postgres and RabbitMQ are private ones that it starts, or those given. An edit of a manifest or of a
    listener's file takes effect at once. Ctrl-C stops everything in order, a second one at once. A resource
    has as many processes as it has replicas, but not more than four.
    """
    # Another command, or a shell that completes one, need not wait for all that this one stands on.
    from outbox_cli.dev.session import develop

    given = given_urls(database_url, broker_url, management_url)
    develop(filenames, path or [], namespace, given, keep=keep, output=output)
