"""Deadlines in milliseconds on an event loop that counts in seconds."""

import asyncio

from broker_layer.groups.group_host import Timers, loop_ms
from tests.simulation.loop import SimulationLoop

FIRST_MS, LAST_MS = 32_000, 33_000
"""Among these, 32.41 s times 1000 is slightly less than 32,410."""


def test_a_timer_fires_after_its_millisecond_began() -> None:
    early: list[int] = []

    def look(due_ms: int) -> None:
        if loop_ms() < due_ms:
            early.append(due_ms)

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        for due_ms in range(FIRST_MS, LAST_MS):
            loop.call_at(due_ms / 1000, look, due_ms)
        await asyncio.sleep(LAST_MS / 1000)

    loop = SimulationLoop(0)
    loop.run_until_complete(wait())
    loop.close()
    assert early == []


def test_each_deadline_is_called_back_once() -> None:
    called: list[int] = []

    async def wait() -> None:
        timers = Timers(lambda key: called.append(key[0]))
        for due_ms in range(FIRST_MS, LAST_MS):
            timers.set_at_latest((due_ms, "group"), due_ms)
        await asyncio.sleep(LAST_MS / 1000)

    loop = SimulationLoop(0)
    loop.run_until_complete(asyncio.wait_for(wait(), LAST_MS))
    loop.close()
    assert called == list(range(FIRST_MS, LAST_MS))
