"""A part is handed what follows its name, and answers as it would itself."""

import subprocess
import sys
from importlib import import_module

import pytest
from typer.testing import CliRunner

from outbox_cli.command import app


@pytest.mark.parametrize("part", ["relay", "worker", "operator"])
@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["--version"], ["--wrong", "-x", "a"], ["--wrong", "--", "--version"]]
)
def test_a_part_answers_as_its_module_does(
    part: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        import_module(f"outbox_{part}.__main__").main(arguments=arguments)
    said = capsys.readouterr()
    result = CliRunner().invoke(app, [part, *arguments])
    assert (result.exit_code, result.stdout, result.stderr) == (ended.value.code, said.out, said.err)


def test_without_its_packages_a_part_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['kopf'] = None; sys.argv = ['outbox', 'operator']; "
        "from outbox_cli.__main__ import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "outbox: the operator needs kopf; run pip install 'outbox-operator[operator]'\n"
