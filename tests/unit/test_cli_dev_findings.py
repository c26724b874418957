import json
from pathlib import Path

import pytest

from outbox_cli.dev.child import Child, Crash, Surroundings
from outbox_cli.dev.containers import Program
from outbox_cli.dev.findings import availability
from outbox_operator.resources.condition import ConditionStatus

CURE = "run from the folder that has it, or put that folder on PYTHONPATH"
NOWHERE = json.dumps({"level": "ERROR", "message": f"shop: no module; {CURE}"})


def child(*, is_ready: bool = False, crash: Crash | None = None, reason: str = "starting") -> Child:
    made = Child(Program((), {}, 30), Surroundings({}, Path()), lambda _: None)
    made.is_ready, made.crash, made.unready_reason = is_ready, crash, reason
    return made


@pytest.mark.parametrize(
    ("children", "status", "reason", "message"),
    [
        ([], "True", "ScaledToZero", "no processes are wanted; raise the replicas to start some"),
        ([child(is_ready=True)], "True", "Available", "1 of 1 processes are ready"),
        ([child()], "False", "Progressing", "0 of 1 processes are ready: starting"),
        (
            [child(is_ready=True), child(reason="broker: not\nconnected")],
            "True",
            "Progressing",
            "1 of 2 processes are ready: broker: not connected",
        ),
        (
            [child(is_ready=True), child(crash=Crash(1, NOWHERE, 4))],
            "False",
            "CrashLoop",
            "a process ended with exit code 1: shop: no module; name the folder that has it with --path; "
            "it is started again 4 s later, or when a file is edited",
        ),
        (
            [child(crash=Crash(-9, "", 1))],
            "False",
            "CrashLoop",
            "a process was ended by signal 9; it is started again 1 s later, or when a file is edited",
        ),
        (
            [child(crash=Crash(3, "cannot enter amqp://app:geheim@host/", 1))],
            "False",
            "CrashLoop",
            "a process ended with exit code 3: cannot enter amqp://app:***@host/; "
            "it is started again 1 s later, or when a file is edited",
        ),
    ],
)
def test_processes_are_spoken_of_as_pods_are(
    children: list[Child], status: str, reason: str, message: str
) -> None:
    found = availability(children)
    assert (found.status, found.reason, found.message) == (ConditionStatus(status), reason, message)
