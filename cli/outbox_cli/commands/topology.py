"""`outbox topology`: what the broker needs, for those who make it without the operator."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, assert_never

import typer
import yaml

from outbox_cli import screen
from outbox_cli.commands.options import Exchange, Output
from outbox_cli.failures import CommandError, run
from outbox_cli.screen import Format

if TYPE_CHECKING:
    from outbox_cli.topologies.provision import Provision


class Form(StrEnum):
    """What to write it as."""

    DEFINITIONS = "definitions"
    """What RabbitMQ imports."""
    TERRAFORM = "terraform"
    """For the provider cyrilgdn/rabbitmq."""
    MANIFESTS = "manifests"
    """For the RabbitMQ Messaging Topology Operator."""


def topology(
    modules: Annotated[
        list[str] | None, typer.Argument(metavar="MODULE[:NAME]", help="Listeners in the code.")
    ] = None,
    *,
    files: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", metavar="PATH", help="A file or folder of manifests instead."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="For RabbitMQ's own import; for Terraform with cyrilgdn/rabbitmq; for the Messaging "
            "Topology Operator.",
        ),
    ] = Form.DEFINITIONS,
    relay: Annotated[
        str | None, typer.Option("--relay", help="The OutboxRelay, where the manifests have several.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="That of manifests which do not say; default by default."),
    ] = None,
    exchange: Exchange = "outbox",
    vhost: Annotated[str | None, typer.Option("--vhost", help="The virtual host; / by default.")] = None,
    cluster: Annotated[
        str, typer.Option("--rabbitmq-cluster", help="The RabbitmqCluster that manifests are for.")
    ] = "rabbitmq",
    output: Output = Format.TABLE,
) -> None:
    """Print the exchanges, queues, delay tiers and bindings that listeners need.

    From manifests (-f) or from the code (MODULE), as the operator and the worker would make them: for those
    who make them beforehand, and give workers a broker user without the right to.
    """

    async def wanted() -> "Provision":
        # Costs a second: only where it is used.
        from outbox_cli.manifests import manifests_at
        from outbox_cli.modules import listeners_in
        from outbox_cli.topologies.provision import from_code, from_manifests

        if bool(files) == bool(modules):
            raise CommandError("name manifests with -f, or the modules of listeners, and not both")
        if files:
            return from_manifests(manifests_at(files, namespace), relay, vhost)
        return from_code(listeners_in(modules or ()), exchange, vhost)

    _print(run(wanted()), form, cluster, namespace, output)


def _print(provision: "Provision", form: Form, cluster: str, namespace: str | None, output: Format) -> None:
    match form:
        case Form.DEFINITIONS:
            from outbox_cli.topologies.definitions import definitions

            screen.show_json(definitions(provision))
        case Form.TERRAFORM:
            from outbox_cli.topologies.terraform import terraform

            text = terraform(provision)
            if output is Format.JSON:
                screen.show_json({"terraform": text})
            else:
                print(text, end="")
        case Form.MANIFESTS:
            from outbox_cli.topologies.messaging import messaging

            manifests = messaging(provision, cluster, namespace)
            if output is Format.JSON:
                screen.show_json(manifests)
            else:
                print(yaml.safe_dump_all(manifests, sort_keys=False), end="")
        case _:
            assert_never(form)
