"""How long `import outbox` takes in a process that has loaded nothing else."""

import os
import statistics
import subprocess
import sys

from bench.report import Figure

_ROUNDS = 21
_GOAL_MS = 40
_CODE = "import time; start = time.perf_counter(); import outbox; print((time.perf_counter() - start) * 1000)"


def measure() -> list[Figure]:
    # The first one may have to compile; an installed package was compiled when it was installed.
    _import_ms()
    times = [_import_ms() for _ in range(_ROUNDS)]
    median = statistics.median(times)
    ours = f"{median:.1f} ms (best {min(times):.1f})"
    return [Figure("import outbox", ours, "", median, f"< {_GOAL_MS} ms", median < _GOAL_MS)]


def _import_ms() -> float:
    # -I and -S would hide the package where it is installed; the environment's own site is part of the cost
    # of starting Python, not of the import.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    printed = subprocess.run(
        [sys.executable, "-c", _CODE], env=environment, capture_output=True, text=True, check=True
    ).stdout
    return float(printed)
