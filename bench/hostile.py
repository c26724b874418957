"""How long the event loop works on texts of 16 MiB that are made to be expensive."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from bench.report import Figure
from outbox_core.error_text import text_of
from outbox_core.logs import JsonFormatter, TextFormatter
from outbox_core.publisher import Message
from outbox_worker.redelivery import Failure, dead_letter

_SIZE = 16 * 1024 * 1024
_GOAL_MS = 50
_PIECES = ("a://x:", "password='", "x:1@", "token: a", "\x1b[31m", "\u202e", "é", "x")
_ROUNDS = 3


def measure() -> list[Figure]:
    texts = [piece * (_SIZE // len(piece)) for piece in _PIECES]
    worst = max(min(_milliseconds(work, text) for _ in range(_ROUNDS)) for text in texts for work in _WORKS)
    return [
        Figure("the worst text of 16 MiB", f"{worst:.1f} ms", "", worst, f"< {_GOAL_MS} ms", worst < _GOAL_MS)
    ]


def _milliseconds(work: Callable[[BaseException], object], text: str) -> float:
    error = ValueError(text)
    began = time.thread_time()
    work(error)
    return (time.thread_time() - began) * 1000


def _record(error: BaseException) -> logging.LogRecord:
    raised = (type(error), error, error.__traceback__)
    return logging.LogRecord("x", logging.INFO, "", 0, "%s", (error,), raised)


_WORKS: tuple[Callable[[BaseException], object], ...] = (
    text_of,
    lambda error: TextFormatter().format(_record(error)),
    lambda error: JsonFormatter().format(_record(error)),
    lambda error: dead_letter(Message("a", b""), "queue", Failure(error, 1, datetime.now(UTC))),
)
