import asyncio
import functools
import logging

import pytest

from outbox_relay.hooks import Hook, Relayed, tell

MESSAGE = Relayed("some-id", "user.created", attempts=1, error="full")


async def test_no_hook_is_told_nothing() -> None:
    await tell(None, MESSAGE)


async def test_a_plain_hook_is_called_with_the_message() -> None:
    told: list[Relayed] = []
    await tell(told.append, MESSAGE)
    assert told == [MESSAGE]


async def test_an_async_hook_is_awaited() -> None:
    told: list[Relayed] = []

    async def hook(message: Relayed) -> None:
        await asyncio.sleep(0)
        told.append(message)

    await tell(hook, MESSAGE)
    assert told == [MESSAGE]


async def test_a_partial_of_an_async_hook_is_awaited_too() -> None:
    told: list[tuple[str, Relayed]] = []

    async def hook(label: str, message: Relayed) -> None:
        told.append((label, message))

    await tell(functools.partial(hook, "shop"), MESSAGE)
    assert told == [("shop", MESSAGE)]


def fails(message: Relayed) -> None:
    raise ZeroDivisionError(message.routing_key)


async def fails_later(message: Relayed) -> None:
    await asyncio.sleep(0)
    fails(message)


@pytest.mark.parametrize(
    ("hook", "name"), [(fails, "fails"), (fails_later, "fails_later"), (functools.partial(fails), "partial")]
)
async def test_a_hook_that_raises_is_logged_with_its_name_and_the_message(
    caplog: pytest.LogCaptureFixture, hook: Hook, name: str
) -> None:
    await tell(hook, MESSAGE)
    [record] = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "outbox.relay")
    assert name in record.getMessage()
    assert "failed for message some-id; nothing changes by it" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_hook_that_is_cancelled_stays_cancelled() -> None:
    async def cancelled(_: Relayed) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await tell(cancelled, MESSAGE)
