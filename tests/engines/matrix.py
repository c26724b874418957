"""Run the tests on each choice of engines, one after the other: `python -m tests.engines.matrix [ARGS]`.

Arguments are for pytest. The output of each run goes to `build/matrix`, and what came of it to the terminal.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.engines.catalogue import MATRIX, Run
from tests.engines.debian import EngineError
from tests.engines.providing import provide

REPOSITORY = Path(__file__).parents[2]
_LOGS = REPOSITORY / "build" / "matrix"
_SUMMARY = re.compile(r"^=+ (.*(?:passed|failed|error).*) =+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Result:
    run: Run
    status: int
    summary: str
    log: Path

    def __str__(self) -> str:
        word = "ok" if self.status == 0 else "FAILED"
        return f"{word:6}  {self.run.engines!s:8}  {self.summary}  ({self.log})"


def main(arguments: Sequence[str]) -> int:
    _LOGS.mkdir(parents=True, exist_ok=True)
    results: list[_Result] = []
    for run in MATRIX:
        _show(f"engines {run.engines}: {', '.join(run.tests)} …")
        results.append(_run(run, arguments))
        _show(str(results[-1]))
    _show("")
    for result in results:
        _show(str(result))
    return max(result.status != 0 for result in results)


def _run(run: Run, arguments: Sequence[str]) -> _Result:
    log = (_LOGS / f"{run.engines}.log").relative_to(REPOSITORY)
    try:
        folders = provide(run.engines, os.environ, _show)
    except EngineError as error:
        return _Result(run, 1, str(error), log)
    paths = [path for pattern in run.tests for path in sorted(REPOSITORY.glob(pattern))]
    pytest = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    environment = {**os.environ, "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]])}
    began = time.monotonic()
    with (REPOSITORY / log).open("w") as output:
        done = subprocess.run(
            [*pytest, *arguments, *paths],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    found = _SUMMARY.findall((REPOSITORY / log).read_text(errors="replace"))
    summary = found[-1] if found else f"ended without a summary after {time.monotonic() - began:.0f} s"
    return _Result(run, done.returncode, summary, log)


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
