"""Calls for many ledgers leave the event loop time for others."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from ledger_client.writing.pacing import Slices

SLICE_S = 0.005
CALL_S = 0.001


class ManualLoop:
    """Event loop of which a test makes each iteration; a call takes CALL_S."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ready: deque[Callable[[], None]] = deque()
        self.slices = Slices(SLICE_S, lambda: self.now_s, self.ready.append)
        self.made: list[object] = []

    def call(self, name: object) -> None:
        self.now_s += CALL_S
        self.made.append(name)

    def iterate(self) -> int:
        """Run one iteration; return the number of calls that it made."""
        before = len(self.made)
        for _ in range(len(self.ready)):
            self.ready.popleft()()
        return len(self.made) - before

    def drain(self) -> list[int]:
        """Iterate until nothing is left; return the number of calls of each iteration."""
        counts = []
        while self.ready:
            counts.append(self.iterate())
        return counts


def test_no_call_is_made_at_once() -> None:
    loop = ManualLoop()
    loop.slices.soon(partial(loop.call, 1))
    loop.slices.each([partial(loop.call, 2)])
    assert loop.made == []
    assert loop.drain() == [2]


def test_one_iteration_makes_calls_for_a_limited_time() -> None:
    loop = ManualLoop()
    for number in range(100):
        loop.slices.soon(partial(loop.call, number))
    loop.slices.each(partial(loop.call, number) for number in range(100, 1_000))
    counts = loop.drain()
    assert loop.made == list(range(1_000))
    assert max(counts) <= SLICE_S / CALL_S + 1
    assert len(counts) <= 1_000 / (SLICE_S / CALL_S - 1)


def test_single_calls_alone_are_made_in_slices_too() -> None:
    loop = ManualLoop()
    for number in range(20):
        loop.slices.soon(partial(loop.call, number))
    counts = loop.drain()
    assert loop.made == list(range(20))
    assert max(counts) <= SLICE_S / CALL_S + 1


def test_single_calls_come_first_and_rounds_take_turns() -> None:
    loop = ManualLoop()
    loop.slices.each(partial(loop.call, f"a{number}") for number in range(20))
    loop.slices.each(partial(loop.call, f"b{number}") for number in range(20))
    loop.iterate()
    loop.slices.soon(partial(loop.call, "single"))
    loop.iterate()
    before = loop.made.index("single")
    assert before <= SLICE_S / CALL_S + 1
    assert {"a0", "b0"} < set(loop.made[:before])
    loop.drain()
    assert len(loop.made) == 41


def test_a_round_yields_each_call_right_before_it_is_made() -> None:
    loop = ManualLoop()

    def calls() -> Iterator[Callable[[], None]]:
        while len(loop.made) < 30:  # what has been made decides what follows
            yield partial(loop.call, len(loop.made))

    loop.slices.each(calls())
    loop.drain()
    assert loop.made == list(range(30))


async def test_a_call_that_raises_stops_no_other() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: errors.append(context.get("exception"))
    )
    loop = ManualLoop()

    def fail() -> None:
        raise RuntimeError("one ledger's trouble")

    loop.slices.soon(fail)
    loop.slices.each([fail, partial(loop.call, 1)])
    loop.slices.soon(partial(loop.call, 2))
    loop.drain()
    assert loop.made == [2, 1]
    assert [type(error) for error in errors] == [RuntimeError, RuntimeError]


def test_nothing_is_called_after_the_end() -> None:
    loop = ManualLoop()
    loop.slices.soon(partial(loop.call, 1))
    loop.slices.each([partial(loop.call, 2)])
    loop.slices.close()
    loop.slices.soon(partial(loop.call, 3))
    loop.slices.each([partial(loop.call, 4)])
    assert sum(loop.drain()) == 0
