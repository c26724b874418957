import asyncio

from outbox_relay.wake import Wake, WakeReason

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
    await turn()
    assert not second.done()
    wake.up("more")
    assert await woken(second) == ["more"]


async def test_two_reasons_wake_two_sleepers() -> None:
    wake = Wake()
    tasks = [await asleep(wake), await asleep(wake)]
    wake.up("notify")
    wake.up("more")
    assert await woken(*tasks) == ["notify", "more"]


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
