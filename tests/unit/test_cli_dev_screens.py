"""What `outbox dev` shows, as a person sees it."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from outbox_cli.dev.board import Board, Row
from outbox_cli.dev.happenings import Happening, Kind
from outbox_cli.dev.screens import PlainScreen, picture
from outbox_operator.planning.findings import false, true, unknown
from outbox_operator.resources.condition import ConditionType
from tests.hostile import ALL, escaped

CRASH = "a process ended with exit code 1: no module shop"
RELAY = Row(
    resource="outboxrelay/shop",
    ready="True",
    reason="Ready",
    message="",
    conditions=(
        true(ConditionType.CREDENTIALS_VALID, "Valid"),
        true(ConditionType.DATABASE_READY, "TableReady"),
        true(ConditionType.TOPOLOGY_READY, "Present"),
        true(ConditionType.WORKLOAD_AVAILABLE, "Available", "2 of 2 processes are ready"),
    ),
    running="2/2",
    backlog=0,
    parked=1,
)
MAIL = Row(
    resource="outboxlistener/send-mail",
    ready="False",
    reason="CrashLoop",
    message=CRASH,
    conditions=(
        true(ConditionType.CREDENTIALS_VALID, "Valid"),
        true(ConditionType.RELAY_READY, "Ready"),
        true(ConditionType.TOPOLOGY_READY, "Present"),
        false(ConditionType.WORKLOAD_AVAILABLE, "CrashLoop", CRASH),
    ),
    running="0/1",
    backlog=12,
    dead_letters=3,
    handled=40,
    retries=80,
    dead_lettered=3,
)
LONELY = replace(
    MAIL,
    reason="RelayMissing",
    message="create it",
    conditions=(
        false(ConditionType.RELAY_READY, "RelayMissing", "create it"),
        unknown(ConditionType.TOPOLOGY_READY, "RelayMissing", "nothing is known without the relay"),
        false(ConditionType.WORKLOAD_AVAILABLE, "CrashLoop", CRASH),
    ),
)
RETRY = Happening("outboxlistener/send-mail", Kind.RETRIED, "message 1f attempt 1: ValueError: no")
COMPLAINT = 'a.yaml:7: OutboxListener "x": spec.bindingKeys: is required'


def rendered(board: Board, *news: Happening, height: int = 20) -> list[str]:
    console = Console(width=110, height=height, highlight=False)
    with console.capture() as captured:
        told = [("12:00:00", each) for each in news]
        console.print(picture("outbox dev examples/shop", board, told, console))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_screen_has_a_row_for_each_resource_what_is_wrong_and_the_last_news() -> None:
    assert rendered(Board((RELAY, MAIL), (COMPLAINT,)), RETRY) == [
        "outbox dev examples/shop",
        "RESOURCE                  READY  REASON     RUNNING  BACKLOG  PARKED  DLQ  HANDLED  RETRIES  DEAD",
        "outboxrelay/shop          True   Ready      2/2      0        1",
        "outboxlistener/send-mail  False  CrashLoop  0/1      12               3    40       80       3",
        "",
        "RESOURCE                  CONDITIONS",
        "outboxrelay/shop          CredentialsValid ✓  DatabaseReady ✓  TopologyReady ✓  WorkloadAvailable ✓",
        "outboxlistener/send-mail  "
        "CredentialsValid ✓  RelayReady ✓  TopologyReady ✓  WorkloadAvailable ✗ CrashLoop",
        "",
        'a.yaml:7: OutboxListener "x": spec.bindingKeys: is required',
        "outboxlistener/send-mail: a process ended with exit code 1: no module shop",
        "",
        "12:00:00 send-mail retry: message 1f attempt 1: ValueError: no",
    ]


def test_the_newest_news_stay_where_the_terminal_is_small() -> None:
    news = [Happening("outboxlistener/mail", Kind.SAID, str(number)) for number in range(30)]
    for board, height in ((Board((RELAY,)), 12), (Board((RELAY, MAIL), (COMPLAINT * 5,)), 20)):
        lines = rendered(board, *news, height=height)
        assert len(lines) == height - 1
        assert lines[-1] == "12:00:00 mail says: 29"


def test_a_condition_that_is_false_or_unknown_has_its_reason_beside_it() -> None:
    assert rendered(Board((LONELY,)))[5:7] == [
        "outboxlistener/send-mail  RelayReady ✗ RelayMissing      TopologyReady ? RelayMissing",
        "                          WorkloadAvailable ✗ CrashLoop",
    ]


def test_what_a_program_says_cannot_move_the_cursor() -> None:
    [line] = rendered(Board((RELAY,)), Happening("x", Kind.SAID, "\x1b[2J\n" + "long " * 50))[-1:]
    assert line.startswith("12:00:00 x says: \\x1b[2J long")
    assert line.endswith("…")


def test_without_a_terminal_there_is_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    screen.note("export X=1")
    for board in (Board((RELAY,)), Board((RELAY,)), Board((RELAY, MAIL), (COMPLAINT,)), Board((RELAY, MAIL))):
        screen.show(board)
    screen.tell(RETRY)
    assert capsys.readouterr().out.splitlines() == [
        "export X=1",
        "outboxrelay/shop Ready=True Ready",
        "outboxlistener/send-mail WorkloadAvailable=False CrashLoop",
        "outboxlistener/send-mail Ready=False CrashLoop: a process ended with exit code 1: no module shop",
        COMPLAINT,
        "outboxlistener/send-mail retry: message 1f attempt 1: ValueError: no",
    ]


def test_a_line_names_each_condition_that_becomes_false_or_true_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    well = replace(MAIL, ready="True", reason="Ready", message="", conditions=RELAY.conditions)
    screen = PlainScreen()
    for row in (well, LONELY, MAIL, well, well):
        screen.show(Board((row,)))
    assert capsys.readouterr().out.splitlines() == [
        "outboxlistener/send-mail Ready=True Ready",
        "outboxlistener/send-mail RelayReady=False RelayMissing",
        f"outboxlistener/send-mail WorkloadAvailable=False CrashLoop: {CRASH}",
        "outboxlistener/send-mail Ready=False RelayMissing: create it",
        "outboxlistener/send-mail RelayReady=True Ready",
        f"outboxlistener/send-mail Ready=False CrashLoop: {CRASH}",
        "outboxlistener/send-mail WorkloadAvailable=True Available",
        "outboxlistener/send-mail Ready=True Ready",
    ]


def test_for_programs_each_change_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen(as_json=True)
    screen.note("export X=1")
    screen.show(Board((MAIL,), (COMPLAINT,)))
    screen.tell(RETRY)
    note, condition, row, complaint, news = map(json.loads, capsys.readouterr().out.splitlines())
    assert (note, complaint) == ({"note": "export X=1"}, {"complaint": COMPLAINT})
    assert (row["resource"], row["reason"], row["backlog"]) == ("outboxlistener/send-mail", "CrashLoop", 12)
    assert row["conditions"][-1] == {
        "type": "WorkloadAvailable",
        "status": "False",
        "reason": "CrashLoop",
        "message": CRASH,
    }
    assert condition == {"resource": "outboxlistener/send-mail", **row["conditions"][-1]}
    assert news == {
        "source": "outboxlistener/send-mail",
        "kind": "retry",
        "text": "message 1f attempt 1: ValueError: no",
    }


HOSTILE = replace(
    MAIL, resource=ALL, reason=ALL, message=ALL, conditions=(false(ConditionType.RELAY_READY, ALL, ALL),)
)


def test_nothing_on_the_screen_acts_on_the_terminal() -> None:
    news = [Happening(ALL, kind, ALL) for kind in Kind]
    assert all(map(escaped, rendered(Board((HOSTILE,), (ALL,)), *news, height=60)))


@pytest.mark.parametrize("as_json", [False, True])
def test_no_line_acts_on_the_terminal(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    screen = PlainScreen(as_json=as_json)
    screen.note(ALL)
    screen.tell(Happening(ALL, Kind.SAID, ALL))
    screen.show(Board((HOSTILE,), (ALL,)))
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 5
    assert escaped(shown)
