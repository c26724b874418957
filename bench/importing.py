"""How long `import outbox` takes in a process that has loaded nothing else."""

import os
import statistics
import subprocess
import sys

from bench.report import Figure

_ROUNDS = 21
_GOAL_MS = 40
_NEEDED = "import dataclasses, decimal, functools, json, logging, uuid"
"""What an emitter needs of the standard library, and most applications have loaded already."""


def measure() -> list[Figure]:
    alone, emitter, needed = _median("import outbox"), _median("from outbox import Emitter"), _median(_NEEDED)
    return [
        Figure("import outbox", f"{alone:.1f} ms", "", alone, f"< {_GOAL_MS} ms", alone < _GOAL_MS),
        Figure(
            "from outbox import Emitter",
            f"{emitter:.1f} ms",
            f"{needed:.1f} ms for the standard library's part of it",
            emitter / needed,
            "",
            True,
        ),
    ]


def _median(statement: str) -> float:
    # The first one may have to compile; an installed package was compiled when it was installed.
    _import_ms(statement)
    return statistics.median(_import_ms(statement) for _ in range(_ROUNDS))


def _import_ms(statement: str) -> float:
    code = (
        f"import time; start = time.perf_counter(); {statement}; print((time.perf_counter() - start) * 1000)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    return float(printed)
