"""The application's hooks, whose failure changes nothing."""

import logging
from dataclasses import dataclass

import pytest

from outbox_core.hooks import tell

LOG = logging.getLogger("test.hooks")


@dataclass
class Message:
    message_id: str | None = "m-1"


async def test_plain_and_async_hooks_are_told() -> None:
    told: list[tuple[str, Message]] = []

    def plain(message: Message) -> None:
        told.append(("plain", message))

    async def waiting(message: Message) -> None:
        told.append(("async", message))

    message = Message()
    await tell(plain, message, LOG)
    await tell(waiting, message, LOG)
    await tell(None, message, LOG)
    assert told == [("plain", message), ("async", message)]


async def test_a_hook_that_fails_is_logged_by_its_name_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(message: Message) -> None:
        raise ValueError("of the application")

    async def failing_later(message: Message) -> None:
        raise ValueError("of the application")

    for hook in (failing, failing_later):
        caplog.clear()
        await tell(hook, Message(), LOG)
        [record] = caplog.records
        assert hook.__qualname__ in record.getMessage()
        assert "m-1" in record.getMessage()
        assert record.exc_info is not None
