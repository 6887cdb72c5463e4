"""Tests of the virtual-time loop: one history per seed, dead nodes, and endless waits."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.loop import LivelockError, run_simulation, simulation_loop

ROOT = Path(__file__).parents[3]


async def _history() -> list[str]:
    events: list[str] = []

    async def worker(name: str) -> None:
        for step in range(5):
            await asyncio.sleep(0 if step % 2 else 0.25)
            events.append(f"{name}{step}@{asyncio.get_running_loop().time():.2f}")

    async with asyncio.TaskGroup() as group:
        for name in "abcdef":
            group.create_task(worker(name))
    return events


def test_a_seed_gives_one_history_and_seeds_differ() -> None:
    histories = {seed: tuple(run_simulation(_history, seed)) for seed in range(10)}
    assert all(histories[seed] == tuple(run_simulation(_history, seed)) for seed in histories)
    assert len(frozenset(histories.values())) > 5


def test_the_history_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.unit.simulation.test_loop import _history\n"
        "from tests.simulation.loop import run_simulation\n"
        "print(run_simulation(_history, 7))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    ]
    assert outputs[0] == outputs[1]


def test_an_hour_passes_at_once() -> None:
    async def sleep() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run_simulation(sleep, 1) == 3600


def test_a_killed_node_runs_no_more_code_not_even_finally() -> None:
    events: list[str] = []

    async def node() -> None:
        asyncio.get_running_loop().call_later(1, events.append, "timer")
        try:
            events.append("started")
            await asyncio.sleep(1)
            events.append("went on")
        finally:
            events.append("finally")

    async def main() -> list[str]:
        loop = simulation_loop()
        number, _ = loop.spawn(node())
        await asyncio.sleep(0.5)
        loop.kill(number)
        await asyncio.sleep(5)
        return list(events)

    assert run_simulation(main, 3) == ["started"]


def test_waiting_without_a_next_event_is_an_error() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises((LivelockError, TimeoutError)):
        run_simulation(main, 1)


def test_an_unseen_failure_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_simulation(main, 1)


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(AssertionError, match="thread"):
        run_simulation(main, 1)


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_node_stops_between_two_awaits_of_one_task(steps: int) -> None:
    done: list[tuple[int, float]] = []

    async def work() -> None:
        for number in range(5):
            done.append((number, asyncio.get_running_loop().time()))
            await asyncio.sleep(0)

    async def main() -> None:
        loop = simulation_loop()
        node, task = loop.spawn(work())
        loop.call_after_steps(node, steps, lambda: loop.pause(node))
        await asyncio.sleep(3.0)
        assert len(done) == steps
        loop.resume(node)
        await task

    run_simulation(main, 1)
    assert [number for number, _ in done] == list(range(5))
    assert [at for _, at in done] == [0.0] * steps + [3.0] * (5 - steps)


def test_a_stop_that_has_not_begun_is_prevented() -> None:
    async def main() -> None:
        loop = simulation_loop()
        node, task = loop.spawn(asyncio.sleep(1.0))
        loop.call_after_steps(node, 2, lambda: loop.pause(node))
        loop.resume(node)
        await asyncio.wait_for(task, 2.0)

    run_simulation(main, 1)
