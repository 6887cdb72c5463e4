"""Time of requests: only the steps of their work are counted."""

import asyncio

import pytest

from broker_layer.server.exchange import TimedWork, WorkTime


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_time_is_counted_between_begin_and_end() -> None:
    clock = Clock()
    time = WorkTime(clock)
    time.begin()
    clock.now_s = 2.0
    time.begin()
    assert time.spent_s == 2.0
    time.end()
    clock.now_s = 5.0
    assert time.spent_s == 2.0
    time.begin()
    clock.now_s = 6.0
    time.end()
    assert time.spent_s == 3.0


async def test_waiting_is_not_counted() -> None:
    clock, event = Clock(), asyncio.Event()
    time = WorkTime(clock)

    async def work() -> None:
        clock.now_s += 1.0
        await event.wait()
        clock.now_s += 2.0

    task = asyncio.create_task(TimedWork(work(), time))
    await asyncio.sleep(0)
    clock.now_s += 100.0
    event.set()
    await task
    assert time.spent_s == 3.0


async def test_a_failure_and_a_cancellation_reach_the_work() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise ValueError("the work fails") from None

    task = asyncio.create_task(TimedWork(work(), WorkTime(lambda: 0.0)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="the work fails"):
        await task
    assert ended == ["cancelled"]

    async def unstarted() -> None:
        ended.append("started")

    TimedWork(unstarted(), WorkTime(lambda: 0.0)).close()
    assert ended == ["cancelled"]
