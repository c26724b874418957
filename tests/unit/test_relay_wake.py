import asyncio
import time

from outbox_relay.wake import ON_THE_WAY_SECONDS, Wake, WakeReason

LONG = 3600.0
_DEADLINE_SECONDS = 30


async def asleep(wake: Wake, timer_seconds: float | None = None) -> "asyncio.Task[WakeReason]":
    """A lane that has gone to sleep."""
    task = asyncio.create_task(wake.sleep(timer_seconds, LONG))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def woken(*tasks: "asyncio.Task[WakeReason]") -> list[WakeReason]:
    async with asyncio.timeout(_DEADLINE_SECONDS):
        return list(await asyncio.gather(*tasks))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_reason_wakes_one_sleeper_and_the_one_that_slept_longest() -> None:
    wake = Wake()
    first, second = await asleep(wake), await asleep(wake)
    wake.up("notify")
    assert await woken(first) == ["notify"]
    wake.arrived()
    await turn()
    assert not second.done()
    wake.up("more")
    assert await woken(second) == ["more"]


async def test_to_plan_anew_is_no_reason_to_look() -> None:
    wake = Wake()
    first = await asleep(wake)
    wake.replan()
    assert await woken(first) == ["replan"]
    second = await asleep(wake)
    wake.up("notify")
    assert await woken(second) == ["notify"]


async def test_a_reason_after_a_lane_has_arrived_wakes_the_next() -> None:
    wake = Wake()
    tasks = [await asleep(wake), await asleep(wake)]
    wake.up("notify")
    wake.arrived()
    wake.up("more")
    assert await woken(*tasks) == ["notify", "more"]


async def test_what_is_heard_of_while_a_lane_is_on_its_way_needs_no_other() -> None:
    wake = Wake(clock=lambda: 0.0)
    first, second = await asleep(wake), await asleep(wake)
    wake.up("notify")
    wake.up("notify")
    assert await woken(first) == ["notify"]
    wake.arrived()
    await turn()
    assert not second.done()
    assert wake.take() is None
    wake.up_all()
    assert await woken(second) == ["stop"]


async def test_a_lane_that_took_a_reason_that_waited_is_on_its_way_too() -> None:
    wake = Wake(clock=lambda: 0.0)
    wake.up("notify")
    assert wake.take() == "notify"
    wake.up("notify")
    assert wake.take() is None
    wake.arrived()
    wake.up("notify")
    assert wake.take() == "notify"


async def test_a_lost_connection_is_told_to_another_lane_all_the_same() -> None:
    wake = Wake(clock=lambda: 0.0)
    tasks = [await asleep(wake), await asleep(wake)]
    wake.up("notify")
    wake.up("lost")
    assert await woken(*tasks) == ["notify", "lost"]


async def test_a_reason_that_comes_as_the_time_is_over_is_not_lost() -> None:
    loop, wake = asyncio.get_running_loop(), Wake()
    task = asyncio.create_task(wake.sleep(None, 0.3))
    await asyncio.sleep(0)
    # Both are due in the loop's next turn, the reason first: the sleeper has it, and is told to be late.
    loop.call_soon(wake.up, "notify")
    time.sleep(0.4)  # noqa: ASYNC251 - the loop has to be late
    assert await woken(task) == ["notify"]


async def test_a_lane_that_meets_an_obstacle_on_its_way_holds_up_no_other() -> None:
    now = 0.0
    wake = Wake(clock=lambda: now)
    first, second = await asleep(wake), await asleep(wake)
    wake.up("notify")
    assert await woken(first) == ["notify"]
    now = ON_THE_WAY_SECONDS
    wake.up("notify")
    assert await woken(second) == ["notify"]


async def test_a_reason_that_finds_nobody_asleep_waits_for_the_next() -> None:
    wake = Wake()
    wake.up("notify")
    assert await wake.sleep(None, LONG) == "notify"
    # Once: it is not there for the one after.
    task = await asleep(wake)
    wake.up_all()
    assert await woken(task) == ["stop"]


async def test_the_timer_or_the_poll_ends_a_sleep_whichever_is_first() -> None:
    wake = Wake()
    assert await wake.sleep(0.001, LONG) == "timer"
    assert await wake.sleep(None, 0.001) == "poll"
    assert await wake.sleep(LONG, 0.001) == "poll"
    assert await wake.sleep(float("inf"), 0.001) == "poll"


async def test_a_timer_that_is_over_already_ends_the_sleep_at_once() -> None:
    assert await Wake().sleep(-1.0, LONG) == "timer"
    assert await Wake().sleep(0.0, LONG) == "timer"


async def test_a_reason_is_not_spent_on_a_sleeper_that_has_left() -> None:
    wake = Wake()
    left = await asleep(wake)
    left.cancel()
    await turn()
    stays = await asleep(wake)
    wake.up("notify")
    assert await woken(stays) == ["notify"]


async def test_a_reason_is_not_spent_on_a_sleeper_that_is_just_being_cancelled() -> None:
    wake = Wake()
    leaving, stays = await asleep(wake), await asleep(wake)
    leaving.cancel()
    wake.up("notify")
    assert await woken(stays) == ["notify"]
    assert leaving.cancelled()


async def test_stopping_wakes_everybody_and_nobody_sleeps_again() -> None:
    wake = Wake()
    tasks = [await asleep(wake) for _ in range(3)]
    wake.up_all()
    assert await woken(*tasks) == ["stop", "stop", "stop"]
    assert await wake.sleep(None, LONG) == "stop"
