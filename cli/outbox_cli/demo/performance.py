"""A performance of `outbox demo`: the services, the shop, its story, and the account at the end."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import typer

from outbox_cli import screen
from outbox_cli.demo.account import HEADINGS, Account, discrepancies
from outbox_cli.demo.shop import Shop
from outbox_cli.demo.story import Pace, Story, expectations
from outbox_cli.dev.lodging import lodging
from outbox_cli.dev.session import INTERRUPTED
from outbox_cli.dev.site import Site
from outbox_cli.failures import CommandError, fail, line_of, run
from outbox_cli.local.services import to_stderr
from outbox_cli.screen import Format


def perform(pace: Pace, given: Mapping[str, str | None], output: Format) -> None:
    """Let it happen and show the account; exit code 1 where that does not add up."""
    try:
        with lodging(given) as services, tempfile.TemporaryDirectory(prefix="outbox-demo-") as folder:
            site = Site.of(services)
            shop = Shop(Path(folder), site.database_url)
            shop.open()
            account = run(Story(site, shop, to_stderr, pace).run())
    except CommandError as error:
        fail(line_of(error))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    _show(account, [*discrepancies(account, expectations(pace))], output)


def _show(account: Account, wrong: list[str], output: Format) -> None:
    if output is Format.JSON:
        screen.show_json({**asdict(account), "discrepancies": wrong})
    else:
        screen.say(
            f"{account.begun} orders begun: {account.placed} placed, {account.rolled_back} rolled back"
        )
        screen.show_table(HEADINGS, [line.cells for line in account.lines])
        if not wrong:
            screen.say(
                "It adds up: what was committed was handled, once, and of what was rolled back nobody heard."
            )
    if wrong:
        fail(*(f"it does not add up: {line}" for line in wrong))
