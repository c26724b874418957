"""How a relay or a worker starts: patiently where waiting helps, and not at all where a person has to act."""

import asyncio
from contextlib import suppress

import pytest

from outbox_core.broker import BrokerState
from outbox_core.broker_errors import BrokerLostError, TopologyMissingError, UnreachableError
from outbox_core.starting import beside, broker_may_come, broker_reason, one_of, patiently


class Away(Exception):
    """What passes by itself."""


def _is_away(error: Exception) -> bool:
    return isinstance(error, Away)


async def test_a_step_is_taken_again_until_somebody_answers() -> None:
    tries: list[int] = []
    waits: list[tuple[str, int]] = []

    async def step() -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise Away("nobody is there")

    def on_wait(reason: str, failures: int) -> None:
        waits.append((reason, failures))

    await patiently(step, is_passing=_is_away, stopping=asyncio.Event(), on_wait=on_wait)
    assert tries == [0, 1, 2]
    assert waits == [("waiting: nobody is there", 1), ("waiting: nobody is there", 2)]


async def test_what_does_not_pass_is_raised_at_once() -> None:
    async def step() -> None:
        raise ValueError("wrong password")

    with pytest.raises(ValueError, match="wrong password"):
        await patiently(step, is_passing=_is_away, stopping=asyncio.Event(), on_wait=_never)


async def test_a_wish_to_stop_ends_the_waiting() -> None:
    stopping = asyncio.Event()
    tries: list[None] = []

    async def step() -> None:
        tries.append(None)
        raise Away

    def on_wait(reason: str, failures: int) -> None:
        stopping.set()

    await patiently(step, is_passing=_is_away, stopping=stopping, on_wait=on_wait)
    assert len(tries) == 1


async def test_a_helper_that_misses_a_cancellation_is_cancelled_again() -> None:
    ended = []

    async def helper() -> None:
        # As wait_for does where the answer comes at the same moment.
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("helper")

    async with beside(helper()):
        await asyncio.sleep(0)
    assert ended == ["helper"]


async def test_helpers_end_with_the_block() -> None:
    ended = asyncio.Event()

    async def helper() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with beside(helper()):
        await asyncio.sleep(0)
        assert not ended.is_set()
    assert ended.is_set()


async def test_a_helper_that_fails_ends_the_block() -> None:
    async def helper() -> None:
        raise Away("gone")

    with pytest.raises(ExceptionGroup) as raised:
        async with beside(helper()):
            await asyncio.Event().wait()
    assert raised.group_contains(Away, match="gone")


def test_exactly_one_of_several_arguments_is_taken() -> None:
    assert one_of(engine=None, url="x") == "x"
    for given in ({"engine": None, "url": None}, {"engine": 1, "url": 2}):
        with pytest.raises(TypeError, match="give exactly one of engine and url"):
            one_of(**given)


def test_waiting_helps_with_a_broker_that_is_away_and_not_with_one_that_refuses() -> None:
    assert broker_may_come(UnreachableError("refused"))
    assert broker_may_come(BrokerLostError("closed"))
    assert not broker_may_come(TopologyMissingError("no exchange"))
    assert not broker_may_come(ValueError("x"))


def test_why_nothing_can_be_sent_is_said() -> None:
    assert broker_reason(BrokerState(is_connected=True)) is None
    assert broker_reason(BrokerState(is_connected=False)) == "not connected"
    assert broker_reason(BrokerState(is_connected=False, problem="refused")) == "not connected: refused"
    assert broker_reason(BrokerState(is_connected=True, blocked_reason="memory")) == "blocked: memory"


def _never(reason: str, failures: int) -> None:
    raise AssertionError(f"waited: {reason} {failures}")
