import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from outbox_worker.errors import NoThreadError
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


def alive(name: str) -> int:
    return sum(thread.name.startswith(f"{name}-") for thread in threading.enumerate())


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.005)


async def hung(threads: Threads, end: threading.Event) -> None:
    """A call that is given up while its function waits for `end`."""
    begun = asyncio.Event()
    call = asyncio.create_task(threads.call(lambda: end.wait(timeout=60), begun.set))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_call_has_begun_when_a_thread_runs_it() -> None:
    threads = Threads(1, "test")
    end, begun = threading.Event(), asyncio.Event()
    first = asyncio.create_task(threads.call(lambda: end.wait(timeout=60)))
    second = asyncio.create_task(threads.call(lambda: None, begun.set))
    await asyncio.sleep(0)
    assert not begun.is_set()
    end.set()
    await first
    await begun.wait()
    await second
    threads.close()


async def test_an_abandoned_thread_is_replaced_and_ends_with_its_function() -> None:
    threads = Threads(1, "replaced")
    for _ in range(3):
        await hung(threads, end := threading.Event())
        assert await threads.call(lambda: "done") == "done"
        assert "1 calls that timed out still run" in (threads.problem or "")
        end.set()
        await until(lambda: threads.problem is None, "the function to end")
    assert await threads.call(lambda: "done") == "done"
    await until(lambda: alive("replaced") == 1, "the threads that are too many to end")
    threads.close()


async def test_what_waits_for_a_thread_gets_that_of_an_abandoned_call() -> None:
    threads, end, begun = Threads(1, "test"), threading.Event(), asyncio.Event()
    first = asyncio.create_task(threads.call(lambda: end.wait(timeout=60), begun.set))
    await begun.wait()
    second = asyncio.create_task(threads.call(lambda: "done"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "done"
    end.set()
    threads.close()


async def test_no_more_threads_are_abandoned_than_allowed() -> None:
    threads, end = Threads(2, "bounded", most_abandoned=3), threading.Event()
    for _ in range(3):
        threads.check()
        await hung(threads, end)
    with pytest.raises(NoThreadError, match="3 calls that timed out still run"):
        threads.check()
    assert alive("bounded") <= 5
    waiting = asyncio.create_task(threads.wait_available())
    await asyncio.sleep(0)
    assert not waiting.done()
    end.set()
    await waiting
    threads.check()
    await until(lambda: threads.problem is None, "the functions to end")
    threads.close()
    await until(lambda: alive("bounded") == 0, "all threads to end")


async def test_a_call_that_is_cancelled_when_it_has_ended_is_not_abandoned() -> None:
    threads, end = Threads(1, "test"), threading.Event()
    call = asyncio.create_task(threads.call(end.set))
    await asyncio.sleep(0)
    assert end.wait(timeout=60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: threads.problem is None, "the thread to be free")
    assert await threads.call(lambda: "done") == "done"
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
