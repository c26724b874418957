"""The boundary around what tenants can reach: it contains, counts and logs, and lets go what is to pass."""

import asyncio
import logging

import pytest

from outbox_core.backoff import Backoff
from outbox_operator import faults
from outbox_operator.cluster.errors import NotLeaderError
from outbox_operator.faults import Faults

ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RecursionError,
    RuntimeError,
    StopAsyncIteration,
    SyntaxError,
    TimeoutError,
    TypeError,
    UnicodeError,
    ValueError,
    asyncio.CancelledError,
)


@pytest.mark.parametrize("error", ERRORS)
async def test_an_unexpected_error_of_any_type_is_contained_and_counted(error: type[BaseException]) -> None:
    parts: list[str] = []
    with Faults(parts.append).contained("broker"):
        raise error
    assert parts == ["broker"]


async def test_a_cancellation_that_was_asked_for_passes() -> None:
    async def wait() -> None:
        with Faults().contained("broker"):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_what_is_to_pass_passes() -> None:
    with pytest.raises(NotLeaderError), Faults(passing=(NotLeaderError,)).contained("reconcile"):
        raise NotLeaderError


async def test_a_fault_is_logged_with_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    contained = Faults().contained
    with caplog.at_level(logging.ERROR):
        for text in ("one", "two"):
            with contained("reconcile", "OutboxRelay shop/a"):
                raise ValueError(text)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]


async def test_a_fault_that_comes_back_after_all_was_well_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contained = Faults().contained
    with caplog.at_level(logging.ERROR):
        for is_wrong in (True, False, True):
            with contained("reconcile", "OutboxRelay shop/a"):
                if is_wrong:
                    raise ValueError("wrong")
    assert [bool(record.exc_info) for record in caplog.records] == [True, True]


async def test_work_that_ends_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, again = 0, asyncio.Event()
    monkeypatch.setattr(faults, "_RESTARTS", Backoff(0.001, 0.001))

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun > 2:
            again.set()
            await asyncio.Event().wait()
        raise KeyError("a listing without a name")

    running = asyncio.create_task(Faults().keep_running("watch check", work))
    await asyncio.wait_for(again.wait(), 10)
    running.cancel()
    await asyncio.wait([running])
    assert begun == 3
