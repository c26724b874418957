"""`python -m tests.docs.stand_ins PROGRAM …`: what stands on PATH for programs that would leave this machine.

helm does nothing of what it is asked for, and refuses what the real one would. kubectl is the real one, on a
real API server; but that has no nodes, so that what needs one only has its arguments read. pip is the real
one too, with a wheel of this checkout; but it only says what it would install. make does as it is told.

On a cluster with nodes helm and kubectl are run for real by tests/e2e/test_pages.py. A wheel is installed by
tests/integration/test_bare_install.py.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from outbox_operator.chart.values import Values
from tests.docs.pages import REPOSITORY

PROGRAMS = ("helm", "kubectl", "make", "pip")
_ONLY_TOLD = ("--dry-run", "--no-deps", "--no-index", "--ignore-installed", "--quiet", "--report=-")
_NEEDS_A_NODE = ("exec", "logs", "port-forward", "drain", "rollout")


def pip(arguments: Sequence[str]) -> None:
    """The real one, which finds only what is in DOCS_WHEELS. A warning of it is a mistake too."""
    command = [sys.executable, "-m", "pip", "--isolated", *arguments, *_ONLY_TOLD]
    done = subprocess.run(
        [*command, "--find-links", os.environ["DOCS_WHEELS"]], capture_output=True, text=True, check=False
    )
    if done.returncode or done.stderr:
        sys.exit(f"pip: {done.stderr}")
    for each in json.loads(done.stdout)["install"]:
        # It would warn of these, were it to look for what they need.
        missing = set(each.get("requested_extras", ())) - set(each["metadata"]["provides_extra"])
        if missing:
            sys.exit(f"pip: {each['metadata']['name']} has no extra {', '.join(sorted(missing))}")


def make(arguments: Sequence[str]) -> None:
    """The real one, with the environment that is there. The demo is faster than for people."""
    match list(arguments):
        case ["demo"]:
            os.execvp("outbox", ["outbox", "demo", "--per-second", "100", "--remind-after", "1"])  # noqa: S606
        case ["test" | "e2e" | "bench" as target]:
            sys.exit(f"make: all of {target} takes too long; say in a comment who runs this block")
        case _:
            made = "--old-file=.venv/.installed"
            os.execvp("/usr/bin/make", ["make", made, "-C", str(REPOSITORY), *arguments])  # noqa: S606


def kubectl(arguments: Sequence[str]) -> None:
    only_read = ("--help",) if arguments[0] in _NEEDS_A_NODE else ()
    program = os.environ["DOCS_KUBECTL"]
    os.execv(program, [program, *arguments, *only_read])  # noqa: S606


def helm(arguments: Sequence[str]) -> None:
    """A chart that is there, with values that it has."""
    parser = argparse.ArgumentParser("helm", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("install", "upgrade", "uninstall", "test"):
        known = verbs.add_parser(verb, allow_abbrev=False)
        known.add_argument("release")
        known.add_argument("--namespace", "-n", required=True)
        known.add_argument("--wait", action="store_true")
        if verb in ("install", "upgrade"):
            known.add_argument("chart", type=Path)
            known.add_argument("--create-namespace", action="store_true")
            known.add_argument("--take-ownership", action="store_true")
            known.add_argument("--set", action="append", default=[])
            known.add_argument("--values", "-f", action="append", default=[], type=Path)
    given = parser.parse_args(arguments)
    if given.verb in ("install", "upgrade"):
        if not (given.chart / "Chart.yaml").exists():
            sys.exit(f"helm: {given.chart} is no chart")
        for path in given.values:
            Values.model_validate(yaml.safe_load(path.read_text()))
        for each in given.set:
            Values.model_validate(_value(*each.split("=", 1)))


def _value(path: str, text: str) -> dict[str, Any]:
    """`watchNamespaces={shop}` as it would be in a file."""
    value: Any = text.strip("{}").split(",") if text.startswith("{") else yaml.safe_load(text)
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


_STAND_INS: dict[str, Callable[[Sequence[str]], None]] = {
    "helm": helm,
    "kubectl": kubectl,
    "make": make,
    "pip": pip,
}

if __name__ == "__main__":
    _STAND_INS[sys.argv[1]](sys.argv[2:])
