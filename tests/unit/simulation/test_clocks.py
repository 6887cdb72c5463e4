"""Tests of machines' clocks: rates, origins and times of day, and timers that follow them."""

import asyncio
import random

from tests.simulation.clocks import RATE_ERROR_MAX, START_S, HostClock, draw_clock, on_clock
from tests.simulation.loop import run_simulation, simulation_loop

FAST = HostClock(rate=1.01, origin_s=500.0, skew_s=-30.0)
SLOW = HostClock(rate=0.99, origin_s=7.0)


def test_a_time_that_a_clock_reaches_is_reached_in_true_time() -> None:
    rng = random.Random(5)
    for seed in range(2_000):
        clock, due_s = draw_clock(seed, "host"), rng.uniform(0, 2e5)
        true_s = clock.true_s(due_s)
        assert clock.monotonic_s(true_s) >= due_s
        assert abs(clock.monotonic_s(true_s) - due_s) < 1e-9 * max(due_s, 1.0)


def test_machines_of_a_run_have_different_clocks_and_a_seed_gives_them_again() -> None:
    clocks = [draw_clock(seed, host) for seed in range(50) for host in "abc"]
    assert clocks == [draw_clock(seed, host) for seed in range(50) for host in "abc"]
    assert len(frozenset(clocks)) == len(clocks)
    assert all(abs(clock.rate - 1) <= RATE_ERROR_MAX for clock in clocks)
    assert 0 < sum(abs(clock.skew_s) > 120 for clock in clocks) < len(clocks) / 3


def test_sleeps_follow_the_clock_of_the_machine() -> None:
    async def sleep() -> tuple[float, float, float]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(100)
        return began_s, loop.time(), simulation_loop().now_s

    async def main() -> list[tuple[float, float, float]]:
        loop = simulation_loop()
        tasks = [loop.spawn(sleep(), clock)[1] for clock in (FAST, SLOW)]
        return [await task for task in tasks]

    fast, slow = run_simulation(main, 3)
    assert fast[0] == 500.0
    assert fast[1] >= 600.0
    assert slow[0] == 7.0
    assert slow[1] >= 107.0
    assert abs(fast[2] - 100 / 1.01) < 0.01
    assert abs(slow[2] - 100 / 0.99) < 0.01


def test_a_deadline_of_a_machine_passes_when_its_timer_fires() -> None:
    async def wait() -> int:
        loop, turns = asyncio.get_running_loop(), 0
        deadline_s = loop.time() + 0.1
        while loop.time() < deadline_s:
            turns += 1
            await asyncio.sleep(deadline_s - loop.time())
        return turns

    async def main() -> list[int]:
        loop = simulation_loop()
        return [await loop.spawn(wait(), draw_clock(seed, "host"))[1] for seed in range(300)]

    assert set(run_simulation(main, 4)) == {1}


def test_a_task_that_sleeps_until_a_true_time_gets_there_in_few_steps() -> None:
    async def wait() -> int:
        loop, turns = simulation_loop(), 0
        until_s = loop.now_s + 100
        while loop.now_s < until_s:
            turns += 1
            await asyncio.sleep(until_s - loop.now_s)
        return turns

    async def main() -> int:
        loop = simulation_loop()
        tasks = [loop.spawn(wait(), draw_clock(seed, "host"))[1] for seed in range(100)]
        return max([await task for task in tasks])

    assert run_simulation(main, 5) < 10


def test_the_time_of_day_is_ahead_by_the_skew() -> None:
    assert FAST.wall_clock_ms(100.0) == round((START_S - 30 + 101) * 1000)
    assert HostClock().wall_clock_ms(0.25) == START_S * 1000 + 250


def test_a_process_is_read_by_the_clock_of_its_machine_from_another_one() -> None:
    async def read() -> tuple[float, float, float]:
        loop = simulation_loop()
        with on_clock(SLOW):
            of_slow = loop.time()
        return of_slow, loop.time(), loop.now_s

    async def main() -> tuple[float, float, float]:
        return await simulation_loop().spawn(read(), FAST)[1]

    of_slow, of_fast, true_s = run_simulation(main, 5)
    assert of_slow == SLOW.monotonic_s(true_s)
    assert of_fast == FAST.monotonic_s(true_s)
