"""What `outbox dev` shows, as a person sees it."""

import json

import pytest
from rich.console import Console, ConsoleDimensions

from outbox_cli.dev.board import Board, Row
from outbox_cli.dev.happenings import Happening, Kind
from outbox_cli.dev.screens import PlainScreen, picture

RELAY = Row(
    resource="outboxrelay/shop", ready="True", reason="Ready", message="", running="2/2", backlog=0, parked=1
)
MAIL = Row(
    resource="outboxlistener/send-mail",
    ready="False",
    reason="CrashLoop",
    message="a process ended with exit code 1: no module shop",
    running="0/1",
    backlog=12,
    dead_letters=3,
    handled=40,
    retries=80,
    dead_lettered=3,
)
RETRY = Happening("outboxlistener/send-mail", Kind.RETRIED, "message 1f attempt 1: ValueError: no")
COMPLAINT = 'The OutboxListener "x" is invalid: spec.bindingKeys: Required value'


def rendered(board: Board, *news: Happening, height: int = 20) -> list[str]:
    console = Console(width=110, highlight=False)
    with console.capture() as captured:
        told = [("12:00:00", each) for each in news]
        console.print(picture("outbox dev examples/shop", board, told, ConsoleDimensions(110, height)))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_screen_has_a_row_for_each_resource_what_is_wrong_and_the_last_news() -> None:
    assert rendered(Board((RELAY, MAIL), (COMPLAINT,)), RETRY) == [
        "outbox dev examples/shop",
        "RESOURCE                  READY  REASON     RUNNING  BACKLOG  PARKED  DLQ  HANDLED  RETRIES  DEAD",
        "outboxrelay/shop          True   Ready      2/2      0        1",
        "outboxlistener/send-mail  False  CrashLoop  0/1      12               3    40       80       3",
        "",
        'The OutboxListener "x" is invalid: spec.bindingKeys: Required value',
        "outboxlistener/send-mail: a process ended with exit code 1: no module shop",
        "",
        "12:00:00 send-mail retry: message 1f attempt 1: ValueError: no",
    ]


def test_the_newest_news_stay_where_the_terminal_is_small() -> None:
    news = [Happening("outboxlistener/mail", Kind.SAID, str(number)) for number in range(30)]
    lines = rendered(Board((RELAY,)), *news, height=10)
    assert len(lines) < 10
    assert lines[-1] == "12:00:00 mail says: 29"


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
        "outboxlistener/send-mail Ready=False CrashLoop: a process ended with exit code 1: no module shop",
        COMPLAINT,
        "outboxlistener/send-mail retry: message 1f attempt 1: ValueError: no",
    ]


def test_for_programs_each_change_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen(as_json=True)
    screen.note("export X=1")
    screen.show(Board((MAIL,), (COMPLAINT,)))
    screen.tell(RETRY)
    note, row, complaint, news = map(json.loads, capsys.readouterr().out.splitlines())
    assert (note, complaint) == ({"note": "export X=1"}, {"complaint": COMPLAINT})
    assert (row["resource"], row["reason"], row["backlog"]) == ("outboxlistener/send-mail", "CrashLoop", 12)
    assert news == {
        "source": "outboxlistener/send-mail",
        "kind": "retry",
        "text": "message 1f attempt 1: ValueError: no",
    }
