import asyncio
import threading
from contextvars import ContextVar

import pytest

from outbox_worker.threads import Threads

variable: ContextVar[str] = ContextVar("variable")


async def test_results_and_errors_come_back() -> None:
    threads = Threads(2, "test")
    assert await threads.call(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda: 1 // 0)
    threads.close()


async def test_context_variables_go_along() -> None:
    threads = Threads(1, "test")
    variable.set("here")
    assert await threads.call(variable.get) == "here"
    threads.close()


async def test_there_are_never_more_threads_than_allowed() -> None:
    threads = Threads(3, "test")
    seen: set[int] = set()
    together = threading.Barrier(3)

    def work() -> None:
        seen.add(threading.get_ident())
        together.wait(timeout=60)

    await asyncio.gather(*(threads.call(work) for _ in range(9)))
    assert len(seen) == 3
    threads.close()


async def test_an_idle_thread_is_used_again() -> None:
    threads = Threads(5, "test")
    assert len({await threads.call(threading.get_ident) for _ in range(10)}) == 1
    threads.close()


async def test_what_waits_when_it_is_cancelled_is_never_begun() -> None:
    threads = Threads(1, "test")
    end = threading.Event()
    begun: list[str] = []
    first = asyncio.create_task(threads.call(lambda: end.wait(timeout=60)))
    await asyncio.sleep(0)
    second = asyncio.create_task(threads.call(lambda: begun.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    end.set()
    assert await first
    assert await threads.call(lambda: begun.append("third")) is None
    assert begun == ["third"]
    threads.close()
