"""Ledgers change their metadata in turns, a limited number at once (rules 5.2, 5.6)."""

import asyncio
from functools import partial

from ledger_client.writing.pacing import Call, LedgerTurns, Slices
from metadata.ids import LedgerId

AT_ONCE = 4
COUNT = 50


class World:
    """Turns, and changes that end when a test ends them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.turns = LedgerTurns(AT_ONCE, Slices(0.005, lambda: 0.0, loop.call_soon))
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def want(self, ledger: int, reason: str = "leave", *, urgent: bool = False) -> None:
        begin = partial(self._begin, f"{reason} {ledger}")
        self.turns.want((LedgerId(ledger), reason), begin, urgent=urgent)

    def _begin(self, name: str) -> None:
        self.begun.append(name)
        self.ends[name] = asyncio.Event()
        self.turns.count(asyncio.get_running_loop().create_task(self._change(name)))

    async def _change(self, name: str) -> None:
        await self.ends[name].wait()
        del self.ends[name]

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.settle()


async def test_a_limited_number_of_changes_is_under_way() -> None:
    world = World()
    for number in range(COUNT):
        world.want(number)
    await world.settle()
    while world.ends:
        assert len(world.ends) == min(AT_ONCE, COUNT - len(world.begun) + len(world.ends))
        await world.end(next(iter(world.ends)))
    assert world.begun == [f"leave {number}" for number in range(COUNT)]


async def test_a_ledger_that_confirms_nothing_comes_first() -> None:
    world = World()
    for number in range(COUNT):
        world.want(number)
    await world.settle()
    world.want(100, urgent=True)
    world.want(30, urgent=True)  # it waited behind others
    await world.end("leave 0")
    await world.end("leave 1")
    assert world.begun[AT_ONCE:] == ["leave 100", "leave 30"]
    while world.ends:
        await world.end(next(iter(world.ends)))
    assert sorted(world.begun) == sorted([f"leave {number}" for number in [*range(COUNT), 100]])


async def test_a_request_that_is_repeated_gets_one_turn() -> None:
    world = World()
    for number in range(COUNT):
        world.want(number)
    world.want(COUNT - 1)
    world.want(COUNT - 1, "join")
    world.want(0, urgent=True)
    world.want(0)  # it stays urgent
    await world.settle()
    assert world.begun[0] == "leave 0"
    while world.ends:
        await world.end(next(iter(world.ends)))
    assert world.begun[-2:] == [f"leave {COUNT - 1}", f"join {COUNT - 1}"]
    assert len(world.begun) == COUNT + 1


async def test_a_cancelled_change_frees_its_place() -> None:
    world = World()
    task = asyncio.get_running_loop().create_task(asyncio.sleep(1000))
    for _ in range(AT_ONCE):
        world.turns.count(task)
    world.want(1)
    await world.settle()
    assert world.begun == []
    task.cancel()  # before it has begun
    await world.settle()
    assert world.begun == ["leave 1"]
    await world.end("leave 1")


async def test_a_turn_without_a_change_frees_its_place() -> None:
    world = World()
    made: list[int] = []
    for number in range(COUNT):
        world.turns.want((LedgerId(number), "leave"), partial(made.append, number), urgent=False)
    await world.settle()
    assert made == list(range(COUNT))


async def test_turns_alternate_with_other_calls_of_the_client() -> None:
    made: list[str] = []
    slices = Slices(0.005, lambda: 0.0, asyncio.get_running_loop().call_soon)
    turns = LedgerTurns(AT_ONCE, slices)
    for number in range(3):
        turns.want((LedgerId(number), "leave"), partial(made.append, "turn"), urgent=False)
    slices.each(partial(made.append, "other") for _ in range(3))
    await asyncio.sleep(0)
    assert made == ["turn", "other"] * 3


async def test_a_ledger_that_waits_makes_no_call() -> None:
    scheduled: list[Call] = []
    turns = LedgerTurns(1, Slices(0.005, lambda: 0.0, scheduled.append))
    task = asyncio.get_running_loop().create_task(asyncio.sleep(1000))
    turns.want((LedgerId(1), "leave"), partial(turns.count, task), urgent=False)
    scheduled.pop()()
    turns.want((LedgerId(2), "leave"), partial(turns.count, task), urgent=False)
    assert scheduled == []
    task.cancel()
