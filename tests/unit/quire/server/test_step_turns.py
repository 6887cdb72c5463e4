"""One step of one large request in each pass of the loop; clients take turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from metadata.cancelling import cancel_and_wait
from quire.identity.shares import QueueFullError
from quire.server import connection_context as step_turns
from quire.server.connection_context import LARGE_BYTES, StepTurns
from tests.support.loop_passes import LoopPasses, counting_passes

STEPS = 5
ALICE, MALLORY = "User:alice", "User:mallory"


class World:
    """Requests whose steps are noted, with the pass of the loop in which each runs."""

    def __init__(self) -> None:
        self.turns = StepTurns()
        self.passes = LoopPasses()
        self.steps: list[tuple[str, int]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, holder: str, frame_bytes: int = LARGE_BYTES) -> asyncio.Task[None]:
        work = self.turns.run(holder, self._work(holder), frame_bytes)
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def _work(self, holder: str) -> None:
        for _ in range(STEPS):
            self.steps.append((holder, self.passes.now))
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with counting_passes() as made.passes:
        yield made
    await cancel_and_wait(*made.tasks)


async def test_one_step_of_all_large_requests_runs_in_a_pass(world: World) -> None:
    await asyncio.gather(*(world.begin(f"User:{number}") for number in range(20)))
    passes = [each for _, each in world.steps]
    assert len(passes) == 20 * STEPS
    assert len(set(passes)) == len(passes)


async def test_a_request_alone_waits_for_no_turn(world: World) -> None:
    await world.begin(ALICE)
    first = world.steps[0][1]
    assert [each for _, each in world.steps] == list(range(first, first + STEPS))


async def test_clients_take_turns_whatever_number_of_requests_each_has(world: World) -> None:
    for _ in range(100):
        world.begin(MALLORY)
    await world.begin(ALICE)
    last = max(at for at, (holder, _) in enumerate(world.steps) if holder == ALICE)
    assert STEPS < last < 4 * STEPS


async def test_a_small_request_waits_for_no_turn_until_it_passes_the_loop_on(world: World) -> None:
    for _ in range(20):
        world.begin(MALLORY)
    small = [world.begin(ALICE, 100) for _ in range(3)]
    await asyncio.gather(*small)
    own = [number for holder, number in world.steps if holder == ALICE]
    assert own[0] == own[1] == own[2], "all begin at once"
    assert len(set(own[3:])) == len(own[3:]), "later steps are in turns"


async def test_a_wait_for_something_else_is_no_turn(world: World) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    waiting = asyncio.ensure_future(world.turns.run(MALLORY, wait(), LARGE_BYTES))
    await world.begin(ALICE)
    gate.set()
    await waiting


async def test_what_a_request_raises_or_catches_is_as_without_turns(world: World) -> None:
    ends: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("as told")

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("cleaned up")

    with pytest.raises(ValueError, match="as told"):
        await world.turns.run(ALICE, fail(), LARGE_BYTES)
    task = asyncio.ensure_future(world.turns.run(ALICE, clean_up(), LARGE_BYTES))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert ends == ["cleaned up"]
    await world.begin(ALICE)


async def test_a_cancelled_request_leaves_the_turn_to_others(world: World) -> None:
    waiting = [world.begin(MALLORY) for _ in range(10)]
    await asyncio.sleep(0)
    await cancel_and_wait(*waiting)
    await world.begin(ALICE)


async def test_requests_that_wait_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_turns, "LARGE_WAITING_MAX", 2)
    world.turns = StepTurns()
    tasks = [world.begin(MALLORY) for _ in range(4)]
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(exception) for exception in ended if exception] == [QueueFullError]
