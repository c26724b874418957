"""What a person sees who does not know the command yet: its help, and what Tab offers."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from outbox_cli.command import app

HELP = """
dev        Run a project on this machine as a cluster would: relays and workers, from the same manifests.
demo       See the whole way of messages in half a minute: a small shop, on a private Postgres and RabbitMQ.
status     Show tables, queues, delay tiers and dead letters, and what looks wrong with its cure.
topology   Print the exchanges, queues, delay tiers and bindings that listeners need.
emit       Emit one message in a transaction of its own, and print its id.
tail       Watch messages go by, without taking them from anybody; Ctrl-C ends it.
relay      Run a relay, as python -m outbox_relay does: from the table to the broker.
worker     Run the listeners of modules, as python -m outbox_worker MODULE does.
operator   Run the operator, as python -m outbox_operator does, on the cluster of KUBECONFIG.
schema     The outbox table: its SQL, made, checked or brought to the present.
messages   The messages in the table: pending, delayed, parked or sent.
dlq        The dead letters of a listener: what failed, why, how often, when; sent again, or deleted.
listeners  The listeners in the code, as OutboxListener manifests.
"""
COMMANDS = [line.split()[0] for line in HELP.strip().splitlines()]


def test_the_help_lists_every_command_with_one_line() -> None:
    environment = {"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}
    shown = CliRunner().invoke(app, ["-h"], env=environment).stdout
    panel = shown.partition(" Commands ")[2].splitlines()[1:]
    assert "\n".join(line.strip("│ ") for line in panel if line.startswith("│")) == HELP.strip()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["outbox", ""], sorted(COMMANDS)),
        (["outbox", "me"], ["messages"]),
        (["outbox", "dlq", ""], ["list", "purge", "redrive", "show"]),
        (["outbox", "messages", "list", "--state", "pa"], ["parked"]),
    ],
)
def test_tab_offers_what_can_follow(typed: list[str], offered: list[str]) -> None:
    answer = CliRunner().invoke(app, [], env=asking(typed))
    assert sorted(answer.stdout.split()) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_are_taught_to_ask(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it would look for the shell that runs the tests.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    script = CliRunner().invoke(app, ["--show-completion", shell]).stdout
    assert f"_OUTBOX_COMPLETE=complete_{shell}" in script


def test_the_program_answers_what_a_shell_asks() -> None:
    answered = subprocess.run(
        [sys.executable, "-m", "outbox_cli"],
        env={**os.environ, **asking(["outbox", "em"])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answered.stdout.split() == ["emit"]


def asking(typed: list[str]) -> dict[str, str]:
    """What bash asks with after Tab."""
    return {
        "_OUTBOX_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(typed),
        "COMP_CWORD": str(len(typed) - 1),
    }
