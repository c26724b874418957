"""`outbox listeners`: the listeners in the code as manifests."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from outbox_cli import screen
from outbox_cli.commands.options import Modules, Output, plural
from outbox_cli.failures import run
from outbox_cli.screen import Format

app = typer.Typer(
    help="The listeners in the code, as OutboxListener manifests.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command()
def export(
    modules: Modules,
    *,
    relay: Annotated[
        str | None, typer.Option("--relay", help="The OutboxRelay; by default called as the top package.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="The image with the code in it; by default called as the top package."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Their namespace; left out by default.")
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option("--check", metavar="PATH", help="Print nothing but where the manifests there differ."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the manifests of the listeners in modules, or check those that you have.

    Modules are found as a worker finds them: also in the folder where you are. With --check, exit code 1
    where something differs; what the code does not say, as replicas, is left alone.
    """
    if check:
        _check(modules, check, namespace, output)
        return

    async def made() -> list[dict[str, Any]]:
        # Costs a second: only where it is used.
        from outbox_cli.listeners.export import Deployment, known, manifest
        from outbox_cli.modules import listeners_in, modules_of

        package = modules[0].partition(".")[0].partition(":")[0]
        deployment = Deployment(relay or package, image or f"{package}:latest", namespace)
        listeners = listeners_in(modules)
        return [manifest(each, deployment) for each in known(listeners, modules_of(modules))]

    manifests = run(made())
    if output is Format.JSON:
        screen.show_json(manifests)
    else:
        print(yaml.safe_dump_all(manifests, sort_keys=False), end="")


def _check(modules: list[str], paths: list[Path], namespace: str | None, output: Format) -> None:
    async def compared() -> tuple[int, list[Any]]:
        from outbox_cli.listeners.comparison import differences
        from outbox_cli.listeners.export import known
        from outbox_cli.manifests import manifests_at
        from outbox_cli.modules import listeners_in, modules_of

        found = known(listeners_in(modules), modules_of(modules))
        return len(found), differences(found, manifests_at(paths, namespace).listeners)

    count, found = run(compared())
    if output is Format.JSON:
        screen.show_json(found)
    elif found:
        for difference in found:
            screen.say(difference.line)
    else:
        screen.say(f"code and manifests are in step: {plural(count, 'listener')}")
    if found:
        raise typer.Exit(1)
