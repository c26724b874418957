"""The frame of the command: what it says before it talks to anybody."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outbox_cli.command import app
from outbox_cli.failures import CommandError, line_of, run

ENVIRONMENT = {
    "OUTBOX_DATABASE_URL": None,
    "OUTBOX_BROKER_URL": None,
    "COLUMNS": "200",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
COMMANDS = [
    *(("schema", name) for name in ("print", "create", "check", "upgrade")),
    *(("messages", name) for name in ("list", "show", "retry", "purge")),
    *(("dlq", name) for name in ("list", "show", "redrive", "purge")),
    ("dev",),
    ("demo",),
    ("emit",),
    ("tail",),
    ("status",),
    ("topology",),
    ("listeners", "export"),
]


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), env=ENVIRONMENT)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_helps_and_speaks_json(command: tuple[str, ...], flag: str) -> None:
    status, output, _ = invoke(*command, flag)
    assert status == 0
    assert "--output" in output


def test_the_version_is_that_of_the_distribution() -> None:
    assert invoke("--version") == (0, f"outbox {version('outbox-operator')}\n", "")


@pytest.mark.parametrize("arguments", [("messages", "list"), ("messages", "retry"), ("schema", "create")])
def test_without_a_database_the_cure_is_told(arguments: tuple[str, ...]) -> None:
    line = "outbox: there is no database URL; give --database-url, or set OUTBOX_DATABASE_URL\n"
    assert invoke(*arguments) == (1, "", line)


def test_without_a_broker_the_cure_is_told() -> None:
    line = "outbox: there is no broker URL; give --broker-url, or set OUTBOX_BROKER_URL\n"
    assert invoke("dlq", "redrive", "mail") == (1, "", line)


def test_a_malformed_broker_url_is_not_repeated() -> None:
    status, _, errors = invoke("dlq", "list", "mail", "--broker-url", "http://app:geheim@x")
    assert status == 1
    assert errors.startswith("outbox: the broker's URL is malformed")
    assert "geheim" not in errors


def test_a_malformed_duration_says_what_to_write() -> None:
    status, _, errors = invoke("messages", "list", "--older-than", "5 days")
    assert status == 2
    assert "'5 days' is not a duration" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("messages", "list", "-k", ""),
        ("messages", "list", "--routing-key="),
        ("messages", "list", "--state", ""),
        ("messages", "list", "--table", ""),
        ("messages", "list", "--namespace", ""),
        ("messages", "list", "--relay", ""),
        ("messages", "show", ""),
        ("messages", "retry", "-k", ""),
        ("messages", "retry", "-k", "  "),
        ("messages", "retry", ""),
        ("messages", "purge", "-k", "", "--yes"),
        ("messages", "purge", "--state", "", "--yes"),
        ("messages", "purge", "--older-than", "", "--yes"),
        ("messages", "purge", "", "--yes"),
        ("dlq", "list", ""),
        ("dlq", "show", "mail", ""),
        ("dlq", "show", "mail", "--error", ""),
        ("dlq", "redrive", ""),
        ("dlq", "redrive", "mail", ""),
        ("dlq", "redrive", "mail", "--id", ""),
        ("dlq", "redrive", "mail", "--id", "a", "--id", ""),
        ("dlq", "redrive", "mail", "--error", ""),
        ("dlq", "redrive", "mail", "--error", "\t"),
        ("dlq", "purge", "mail", "--id", "", "--yes"),
        ("dlq", "purge", "mail", "--error", "", "--yes"),
        ("dlq", "purge", "mail", "--newer-than", "", "--yes"),
        ("status", "--queue", ""),
        ("status", "--exchange", ""),
        ("status", "--context", ""),
        ("tail", ""),
        ("tail", "--exchange", ""),
        ("emit", "", "{}"),
        ("emit", "order.placed", "{}", "--timer-id", ""),
        ("listeners", "export", ""),
        ("listeners", "export", "shop.listeners", "--relay", ""),
        ("listeners", "export", "shop.listeners", "--check", ""),
        ("topology", "-f", ""),
        ("topology", "shop.listeners", "--vhost", ""),
        ("dev", "-f", ""),
        ("schema", "print", "--table", ""),
    ],
    ids=" ".join,
)
def test_an_empty_value_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    status, output, errors = invoke(*arguments)
    assert (status, output) == (2, "")
    assert "it is empty" in " ".join(errors.split())


def test_an_empty_body_is_a_body() -> None:
    status, _, errors = invoke("emit", "order.placed", "")
    assert (status, errors) == (
        1,
        "outbox: there is no database URL; give --database-url, or set OUTBOX_DATABASE_URL\n",
    )


def test_a_password_in_an_error_is_masked() -> None:
    assert line_of(CommandError("no answer from amqp://app:geheim@host/")) == (
        "no answer from amqp://app:***@host/"
    )


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    async def fault() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(fault())


def test_without_its_packages_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from outbox_cli.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "outbox: the command needs typer; run pip install 'outbox-operator[cli]'\n"


def test_the_plugin_of_kubectl_is_the_same_program() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    scripts = tomllib.loads(project.read_text())["project"]["scripts"]
    assert scripts["kubectl-outbox"] == scripts["outbox"]
