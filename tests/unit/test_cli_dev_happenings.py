import json

import pytest

from outbox_cli.dev.happenings import Happening, Kind, heard


def logged(message: str, level: str = "INFO") -> str:
    return json.dumps({"time": "now", "level": level, "logger": "outbox.worker", "message": message})


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        (
            logged("message 1f of queue shop.mail processed successfully"),
            Kind.HANDLED,
            "message 1f",
        ),
        (
            logged("message 1f of queue shop.mail skipped: it had been handled before"),
            Kind.HANDLED,
            "message 1f skipped: it had been handled before",
        ),
        (
            logged("attempt 2 at message 1f of queue q failed with ValueError: no; it is tried again in 1 s"),
            Kind.RETRIED,
            "attempt 2: ValueError: no; tried again in 1 s; message 1f",
        ),
        (
            logged(
                "attempt 3 at message 1f of queue q failed with ValueError: a\nb; it is dead-lettered: enough"
            ),
            Kind.DEAD_LETTERED,
            "attempt 3: ValueError: a b; dead-lettered: enough; message 1f",
        ),
        (logged("the broker is away", "WARNING"), Kind.TROUBLE, "the broker is away"),
        (logged("the broker is ready"), Kind.SAID, "the broker is ready"),
        ("  charging a card ", Kind.SAID, "charging a card"),
        ('{"no": "log entry"}', Kind.SAID, '{"no": "log entry"}'),
        ("5", Kind.SAID, "5"),
        ("amqp://app:geheim@host/", Kind.SAID, "amqp://app:***@host/"),
    ],
)
def test_a_line_is_news_of_its_kind(line: str, kind: Kind, text: str) -> None:
    assert heard("outboxlistener/mail", line) == Happening("outboxlistener/mail", kind, text)
