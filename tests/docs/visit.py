"""A reader at a page: does what it says, block by block."""

import ast
import inspect
import json
import re
import shlex
import tomllib
import types
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import yaml

from outbox_cli.local import Services
from outbox_operator.chart.values import Values
from tests.docs import preludes
from tests.docs.pages import REPOSITORY, Block, blocks_of
from tests.docs.premises import Premises
from tests.docs.shell import Shell, Told
from tests.docs.shop_namespace import ShopNamespace
from tests.docs.shown import agrees

_CLUSTER = re.compile(r"\bkubectl\b")
_PIP = re.compile(r"\bpip\b")
_STARTS_SERVICES = re.compile(r"\b(outbox|make) (dev|demo)\b")
_EXIT = re.compile(r"exit (\d)")
_UNTIL = "until "
_BY_TEST = re.compile(r"tests/\S+\.py")
_BY_CI = ".ci/run"


class Visit:
    """One page, being read."""

    def __init__(
        self,
        page: Path,
        folder: Path,
        services: Services,
        namespace: Callable[[], ShopNamespace],
        wheels: Callable[[], Path],
    ) -> None:
        """`namespace` gives what commands for a cluster need, `wheels` what pip does, where there are any."""
        self._page = page
        self._folder = folder
        self._namespace = namespace
        self._wheels = wheels
        self._blocks = blocks_of(page)
        self._read = 0
        self._answers: dict[int, Told] = {}
        self._closing = ExitStack()
        self._premises = Premises(services)
        self._closing.callback(self._premises.close)

    def close(self) -> None:
        self._closing.close()

    def read(self, block: Block) -> None:
        """Do what the block says, once all before it has been done."""
        at = self._blocks.index(block)
        while self._read <= at:
            self._read += 1
            self._do(self._read - 1)

    def _do(self, at: int) -> None:
        block = self._blocks[at]
        if _BY_TEST.fullmatch(block.mark):
            _check_is_done_by(REPOSITORY / block.mark, block)
            return
        if block.mark == _BY_CI:
            _check_is_done_by_ci(block)
            return
        if block.file:
            self._write(block.file, self._premises.real(block.text))
        match block.language:
            case "python":
                self._python(block)
            case "sh":
                self._answers[at] = self._sh(block)
            case "text":
                self._text(at, block)
            case "yaml":
                self._yaml(block)
            case "sql":
                with psycopg.connect(self._premises.database_url, autocommit=True) as connection:
                    connection.execute(block.text.encode())
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case other:
                raise AssertionError(f"{block.id}: nobody knows how to run {other!r}; teach {__file__}")

    # The kinds of blocks

    def _python(self, block: Block) -> None:
        if block.mark.startswith(_UNTIL):
            script = self._write(f"block_{block.line}.py", self._premises.real(block.text))
            _check_end(block, self._shell.run_until(f"python {script}", block.mark.removeprefix(_UNTIL)))
            return
        before = set(self._names)
        # So that a traceback names the page and its line.
        text = "\n" * block.line + self._premises.real(block.text)
        code = compile(text, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        self._call(types.FunctionType(code, self._names))
        for name in [each for each in self._names if each.startswith("test_") and each not in before]:
            self._call(self._names[name])

    def _call(self, function: Callable[[], Any]) -> None:
        answer = function()
        if inspect.isawaitable(answer):
            self._premises.runner.run(_awaited(answer))

    def _sh(self, block: Block) -> Told:
        text = self._premises.real(block.text)
        if _CLUSTER.search(text):
            self._namespace().point_at(self._premises.database_url, self._premises.broker_url)
        if block.mark.startswith(_UNTIL):
            told = self._shell.run_until(text, block.mark.removeprefix(_UNTIL))
        else:
            told = self._shell.run(text)
        _check_end(block, told)
        return told

    def _text(self, at: int, block: Block) -> None:
        if block.mark == "picture":
            return
        answer = self._answers.get(at - 1)
        assert answer is not None, f"{block.id}: a text is a picture, or the answer of the block before it"
        assert agrees(block.text, answer.said), f"{block.id}: the answer was\n{answer.said}"

    def _yaml(self, block: Block) -> None:
        for manifest in yaml.safe_load_all(block.text):
            if "kind" not in manifest:
                Values.model_validate(manifest)
                continue
            shop = self._namespace()
            done = shop.api.kubectl(
                *("apply", "--namespace", shop.name, "--dry-run=server", "--filename=-"),
                text=yaml.safe_dump(manifest),
            )
            assert (done.returncode, done.stderr) == (0, ""), f"{block.id}: {done.stderr}"

    # What they need

    def _write(self, name: str, text: str) -> Path:
        folder = self._shell.folder
        # Where the shell stands, the repository's own files are linked.
        assert not (folder / Path(name).parts[0]).is_symlink(), f"{name} is a file of the repository"
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    @cached_property
    def _shell(self) -> Shell:
        scripts = [block.text for block in self._blocks if block.language == "sh"]
        environment = {"OUTBOX_PROBE_PORT": "0"}
        if any(map(_STARTS_SERVICES.search, scripts)):
            environment |= self._premises.empty()
        if any(map(_CLUSTER.search, scripts)):
            plane = self._namespace().api.control_plane
            environment |= {"KUBECONFIG": str(plane.kubeconfig), "DOCS_KUBECTL": str(plane.programs.kubectl)}
        if any(map(_PIP.search, scripts)):
            environment["DOCS_WHEELS"] = str(self._wheels())
        return Shell.opened(self._folder, environment)

    @cached_property
    def _names(self) -> dict[str, Any]:
        """What the Python blocks of the page share."""
        runner = self._premises.runner
        names = runner.run(preludes.names(self._page, self._premises.database_url))
        self._closing.callback(lambda: runner.run(preludes.close(names)))
        return names


def _check_end(block: Block, told: Told) -> None:
    expected = _EXIT.fullmatch(block.mark)
    assert told.status == (int(expected[1]) if expected else 0), f"{block.id}: {told.said}"


def _check_is_done_by(test: Path, block: Block) -> None:
    """That the test reads the page, or has the words of the block."""
    source = test.read_text()
    if "import readme" in source:
        assert block.page == REPOSITORY / "README.md", f"{block.id}: {test.name} reads the README"
        return
    words = shlex.split(block.text)[1:] if block.language == "sh" else block.text.splitlines()
    missing = [word for word in words if word not in source]
    assert not missing, f"{block.id}: {test.name} has no {missing}"


def _check_is_done_by_ci(block: Block) -> None:
    """That each of its commands is one of the run that this test is part of."""
    done = (REPOSITORY / _BY_CI).read_text().splitlines()
    commands = [shlex.join(shlex.split(line, comments=True)) for line in block.text.splitlines()]
    missing = [command for command in commands if command not in done]
    assert not missing, f"{block.id}: {_BY_CI} has no {missing}"


async def _awaited(answer: Any) -> Any:
    return await answer
