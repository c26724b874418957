"""A session of `outbox dev`, from the files that a person names to the end of what they say."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from outbox_cli import screen
from outbox_cli.commands.options import BROKER_URL, DATABASE_URL
from outbox_cli.dev import manifests as files
from outbox_cli.dev.development import Development
from outbox_cli.dev.lodging import kept_folder, lodging
from outbox_cli.dev.manifests import Manifests
from outbox_cli.dev.screens import AnyScreen, LiveScreen, PlainScreen
from outbox_cli.dev.site import Site
from outbox_cli.dev.sources import Sources
from outbox_cli.failures import CommandError, fail, line_of, run
from outbox_cli.local.choice import POSTGRES, RABBITMQ
from outbox_cli.screen import Format

INTERRUPTED = 130
"""What a shell says of a program that a Ctrl-C has ended: here before it had begun."""


def develop(
    filenames: Sequence[Path],
    code: Sequence[Path],
    namespace: str,
    given: Mapping[str, str | None],
    *,
    keep: bool,
    output: Format,
) -> None:
    """Run what manifests say until a signal; `given` are the URLs of services, by their variables."""
    folder = kept_folder(filenames) if keep else None
    try:
        sources = Sources.of(filenames, code)
        manifests = _read(sources, namespace)
        with lodging(given, folder) as services:
            site = Site.of(services)
            with _screen(f"outbox dev: {', '.join(map(str, filenames))} (Ctrl-C stops)", output) as shown:
                for line in _exports(site, given):
                    shown.note(line)
                run(Development(sources, manifests, site, shown, namespace).run_until_interrupted())
    except CommandError as error:
        fail(line_of(error))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if folder is not None:
        kept = f"the data is kept in {folder}: the next outbox dev --keep goes on with it; or delete it"
        PlainScreen(as_json=output is Format.JSON).note(kept)


def _read(sources: Sources, namespace: str) -> Manifests:
    manifests = files.read(sources.texts(), namespace)
    if manifests.complaints:
        fail(*manifests.complaints)
    if not manifests.relays and not manifests.listeners:
        where = ", ".join(map(str, sources.manifests))
        fail(f"there is no OutboxRelay and no OutboxListener in {where}; name others with -f")
    return manifests


def _screen(title: str, output: Format) -> AnyScreen:
    if output is Format.TABLE and sys.stdout.isatty():
        return LiveScreen(title, screen.console())
    return PlainScreen(as_json=output is Format.JSON)


def _exports(site: Site, given: Mapping[str, str | None]) -> list[str]:
    """How an application enters the private services; whoever gave one knows it."""
    private = {
        DATABASE_URL: None if given[POSTGRES.variable] else site.database_url,
        BROKER_URL: None if given[RABBITMQ.variable] else site.access.uri(),
    }
    return [f"export {variable}={shlex.quote(url)}" for variable, url in private.items() if url]
