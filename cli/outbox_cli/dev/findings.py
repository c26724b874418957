"""What is said of the processes of a resource, as a finding like that of a cluster's pods. Pure."""

import json
from collections.abc import Sequence

from outbox_cli.dev.child import Child, Crash
from outbox_core.masking import mask
from outbox_operator.conditions import Finding
from outbox_operator.planning.findings import false, true, unknown
from outbox_operator.resources.condition import ConditionType

_AVAILABLE = ConditionType.WORKLOAD_AVAILABLE
_LONGEST_WORDS = 400
_ITS_CURE = "run from the folder that has it, or put that folder on PYTHONPATH"
_OUR_CURE = "name the folder that has it with --path"


def availability(children: Sequence[Child]) -> Finding:
    """How the processes are."""
    if not children:
        return true(_AVAILABLE, "ScaledToZero", "no processes are wanted; raise the replicas to start some")
    if crash := next((child.crash for child in children if child.crash), None):
        return false(_AVAILABLE, "CrashLoop", _crashed(crash))
    ready = [child for child in children if child.is_ready]
    count = f"{len(ready)} of {len(children)} processes are ready"
    if len(ready) == len(children):
        return true(_AVAILABLE, "Available", count)
    reason = next(child.unready_reason for child in children if not child.is_ready)
    said = f"{count}: {mask(' '.join(reason.split()))}"
    # Work goes on while one is there to do it.
    return true(_AVAILABLE, "Progressing", said) if ready else false(_AVAILABLE, "Progressing", said)


def not_configured(problem: str) -> Finding:
    """That a process cannot be started for want of something that it refers to."""
    return false(_AVAILABLE, "CreateContainerConfigError", problem)


def not_run(image: str) -> Finding:
    """That a worker is a program that nobody knows here."""
    return unknown(
        _AVAILABLE,
        "ImageNotRun",
        f"without a handler it is whatever image {image} runs, which outbox dev does not; start it yourself",
    )


def _crashed(crash: Crash) -> str:
    how = (
        f"was ended by signal {-crash.status}" if crash.status < 0 else f"ended with exit code {crash.status}"
    )
    words = f": {_words(crash.words)}" if crash.words else ""
    again = f"it is started again {crash.pause_seconds:g} s later, or when a file is edited"
    return f"a process {how}{words}; {again}"


def _words(line: str) -> str:
    """The end of what a process said, where it is a log entry of ours its message."""
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    text = str(entry["message"]) if isinstance(entry, dict) and "message" in entry else line
    text = mask(" ".join(text.split())).replace(_ITS_CURE, _OUR_CURE)
    return text if len(text) <= _LONGEST_WORDS else f"{text[: _LONGEST_WORDS - 1]}…"
