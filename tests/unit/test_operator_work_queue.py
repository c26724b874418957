"""The queue of resources to be looked at: each once, never by two hands, and later where it failed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from outbox_core.backoff import Backoff
from outbox_operator.reconciling.work_queue import RETRY, WorkQueue

_DEADLINE_SECONDS = 10.0
_NEVER_SECONDS = 3600.0
Do = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class NotedBackoff(Backoff):
    """Notes how often a key had failed each time that it was asked for a delay, and answers `answer`."""

    answer: float = 0.0
    asked: list[int] = field(default_factory=list)

    def delay(self, failures: int, _spread: Callable[[], float] = lambda: 0.5) -> float:
        self.asked.append(failures)
        return self.answer


@dataclass
class Desk:
    """What was worked on, by hands that wait for `door` each time."""

    done: list[str] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)
    at_once: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    most_of_one_key: int = 0
    door: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    async def work(self, key: str) -> bool:
        self.begun[key] += 1
        self.at_once[key] += 1
        self.most_at_once = max(self.most_at_once, self.at_once.total())
        self.most_of_one_key = max(self.most_of_one_key, self.at_once[key])
        await self.door.wait()
        self.at_once[key] -= 1
        self.done.append(key)
        return not self.fails


@pytest.fixture
def desk() -> Desk:
    return Desk()


@asynccontextmanager
async def hands(queue: WorkQueue[str], do: Do, count: int = 3) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(queue.work(do)) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        queue.close()


async def until(holds: Callable[[], bool], what: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _DEADLINE_SECONDS
    while not holds():
        assert loop.time() < deadline, f"never came: {what}"
        await asyncio.sleep(0)


async def test_a_key_that_is_added_often_is_worked_on_once(desk: Desk) -> None:
    queue: WorkQueue[str] = WorkQueue()
    desk.door.set()
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert queue.depth == 2
    async with hands(queue, desk.work):
        await until(lambda: queue.is_idle, "an idle queue")
    assert desk.done == ["a", "b"]


async def test_a_key_is_in_one_hand_at_a_time_and_others_in_the_rest(desk: Desk) -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with hands(queue, desk.work):
        queue.add("a")
        await until(lambda: desk.begun["a"] == 1, "the first hand")
        queue.add("a")
        queue.add("b")
        await until(lambda: desk.begun["b"] == 1, "another key in another hand")
        assert desk.begun["a"] == 1
        desk.door.set()
        await until(lambda: queue.is_idle, "an idle queue")
    assert desk.most_at_once == 2
    assert desk.most_of_one_key == 1


async def test_a_key_added_while_it_is_worked_on_is_worked_on_once_more(desk: Desk) -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with hands(queue, desk.work):
        queue.add("a")
        await until(lambda: desk.begun["a"] == 1, "the first look")
        for _ in range(3):
            queue.add("a")
        assert not queue.is_idle
        desk.door.set()
        await until(lambda: queue.is_idle, "an idle queue")
    assert desk.done == ["a", "a"]


async def test_a_key_that_fails_comes_back_and_its_failures_count_until_it_succeeds(desk: Desk) -> None:
    retry = NotedBackoff()
    queue: WorkQueue[str] = WorkQueue(retry)
    desk.door.set()
    desk.fails = True
    async with hands(queue, desk.work):
        queue.add("a")
        await until(lambda: len(desk.done) >= 4, "four tries")
        desk.fails = False
        await until(lambda: queue.is_idle and not queue._failures, "a success")
        failed = len(retry.asked)
        assert retry.asked == list(range(1, failed + 1))
        desk.fails = True
        queue.add("a")
        await until(lambda: len(retry.asked) > failed, "another failure")
    assert retry.asked[failed] == 1


async def test_a_key_that_fails_holds_up_no_other(desk: Desk) -> None:
    queue: WorkQueue[str] = WorkQueue(NotedBackoff(answer=_NEVER_SECONDS))

    async def work(key: str) -> bool:
        await desk.work(key)
        return key != "bad"

    desk.door.set()
    async with hands(queue, work, count=1):
        for key in ("bad", "a", "b"):
            queue.add(key)
        await until(lambda: queue.is_idle, "an idle queue")
    assert desk.done == ["bad", "a", "b"]


async def test_an_event_does_not_wait_for_the_retry_and_takes_its_place(desk: Desk) -> None:
    retry = NotedBackoff(answer=_NEVER_SECONDS)
    queue: WorkQueue[str] = WorkQueue(retry)
    desk.door.set()
    desk.fails = True
    async with hands(queue, desk.work):
        queue.add("a")
        await until(lambda: len(retry.asked) == 1, "a failure")
        desk.fails = False
        queue.add("a")
        assert not queue._timers
        await until(lambda: queue.is_idle, "an idle queue")
    assert desk.done == ["a", "a"]


async def test_of_two_times_the_sooner_holds(desk: Desk) -> None:
    queue: WorkQueue[str] = WorkQueue()
    desk.door.set()
    async with hands(queue, desk.work):
        queue.add_after("late then soon", _NEVER_SECONDS)
        queue.add_after("late then soon", 0.0)
        queue.add_after("soon then late", 0.0)
        queue.add_after("soon then late", _NEVER_SECONDS)
        await until(lambda: len(desk.done) == 2, "both")
        assert not queue._timers
    assert set(desk.done) == {"late then soon", "soon then late"}


async def test_a_time_for_what_waits_already_means_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add_after("a", _NEVER_SECONDS)
    assert not queue._timers


def test_the_wait_doubles_up_to_five_minutes_at_most() -> None:
    plain = [RETRY.delay(failures, lambda: 0.5) for failures in range(1, 30)]
    assert plain[:4] == [0.5, 1.0, 2.0, 4.0]
    assert plain == sorted(plain)
    assert max(RETRY.delay(failures, lambda: 1.0) for failures in range(1, 100)) == 300.0


def test_two_that_fail_together_do_not_come_back_together() -> None:
    assert RETRY.delay(20, lambda: 0.0) < RETRY.delay(20, lambda: 1.0)


async def test_keys_that_hang_leave_workers_to_other_groups() -> None:
    queue: WorkQueue[str] = WorkQueue(group_of=lambda key: key[0], most_of_a_group=2)
    served: list[str] = []

    async def do(key: str) -> bool:
        if key.startswith("a"):
            await asyncio.Event().wait()
        served.append(key)
        return True

    for number in range(25):
        queue.add(f"a{number}")
    hands = [asyncio.create_task(queue.work(do)) for _ in range(3)]
    for number in range(5):
        queue.add(f"b{number}")
    async with asyncio.timeout(10):
        while len(served) < 5:
            await asyncio.sleep(0)
    assert served == ["b0", "b1", "b2", "b3", "b4"]
    for hand in hands:
        hand.cancel()
    await asyncio.wait(hands)
