"""Threads for slow work: results, failures, and the limit of what waits."""

import asyncio
import gc
import threading
import weakref

import pytest

from quire.server import slow_work
from quire.server.slow_work import SlowWork, SlowWorkFullError
from tests.until import until

pytestmark = pytest.mark.real_time


async def test_work_runs_in_another_thread_with_the_given_name() -> None:
    slow = SlowWork("check")
    names = await slow.run(lambda: threading.current_thread().name)
    assert names.startswith("check")
    slow.close()


async def test_a_failure_is_that_of_the_work() -> None:
    slow = SlowWork("check")
    with pytest.raises(ZeroDivisionError):
        await slow.run(lambda: 1 // 0)
    assert await slow.run(lambda: 5) == 5
    slow.close()


async def test_one_work_runs_at_a_time_in_the_order_of_arrival() -> None:
    slow, running, seen = SlowWork("check"), [0], list[int]()

    def work(number: int) -> int:
        running[0] += 1
        assert running[0] == 1
        seen.append(number)
        running[0] -= 1
        return number

    made = await asyncio.gather(*(slow.run(lambda each=each: work(each)) for each in range(50)))  # type: ignore[misc]
    assert made == seen == list(range(50))
    slow.close()


async def test_more_than_the_limit_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_work, "WAITING_MAX", 3)
    slow, gate = SlowWork("check"), threading.Event()
    waiting = [asyncio.ensure_future(slow.run(gate.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(SlowWorkFullError, match="3 works wait already"):
        await slow.run(lambda: None)
    gate.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await slow.run(lambda: 5) == 5, "there is room again"
    slow.close()


async def test_a_work_whose_caller_is_gone_holds_its_place_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise callers that come and go would begin works without limit."""
    monkeypatch.setattr(slow_work, "WAITING_MAX", 2)
    slow, gate, begun = SlowWork("check"), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()

    tasks = [asyncio.ensure_future(slow.run(work)) for _ in range(2)]
    await until(begun.is_set)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert slow._waiting == 2
    with pytest.raises(SlowWorkFullError):
        await slow.run(work)
    gate.set()
    await until(lambda: slow._waiting == 0)
    assert await slow.run(lambda: 5) == 5
    slow.close()


async def test_close_ends_what_waits_and_refuses_what_comes() -> None:
    slow, gate, begun = SlowWork("check"), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        gate.wait()
        return "done"

    running = asyncio.ensure_future(slow.run(work))
    await until(begun.is_set)
    waiting = asyncio.ensure_future(slow.run(work))
    await asyncio.sleep(0)
    slow.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(SlowWorkFullError, match="closed"):
        await slow.run(work)
    gate.set()
    assert await running == "done"


async def test_results_are_not_kept() -> None:
    class Result:
        pass

    slow = SlowWork("check")
    known = weakref.ref(await slow.run(Result))
    await slow.run(lambda: None)
    gc.collect()
    assert known() is None
    slow.close()
