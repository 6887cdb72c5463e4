"""The entries that a tail takes from the answers to its polls (rules 8.4 and 8.5)."""

from functools import partial

import pytest

from metadata.ledgers.ledger_metadata import DigestType
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.tail_world import POLL_S, Tail, run


@pytest.mark.parametrize("digest", list(DigestType))
def test_an_answer_carries_the_entries_up_to_the_lac(digest: DigestType) -> None:
    async def scenario(tail: Tail) -> None:
        tail.later(0.1, lambda: tail.write(0, 7))
        assert await tail.taken() == [(0, 6)]
        assert simulation_loop().time() < 0.2
        tail.write(7, 3, lac=6)
        tail.write(10, 5, lac=11)
        assert await tail.taken() == [(7, 9), (10, 11)]
        for name in "abc":
            tail.bookies[name].advance(12)
        assert await tail.taken() == [(12, 12)]
        for name in "abc":
            tail.bookies[name].advance(14)
        assert await tail.taken() == [(13, 14)]
        assert len(tail.bookies.noted) == 4

    run(scenario, digest=digest)


@pytest.mark.parametrize("digest", list(DigestType))
def test_entries_behind_the_lac_are_not_taken(digest: DigestType) -> None:
    async def scenario(tail: Tail) -> None:
        tail.bookies.returns_up_to = 11
        for first, count in ((0, 3), (3, 1), (4, 4), (8, 4)):
            tail.write(first, count, lac=-1)
        for name in "abc":
            tail.bookies[name].advance(3)
        assert await tail.taken() == [(0, 2), (3, 3)]
        for name in "abc":
            tail.bookies[name].advance(5)
        assert await tail.taken() == [(4, 5)]

    run(scenario, digest=digest)


def test_a_late_answer_gives_only_the_entries_after_the_lac() -> None:
    """Another bookie reported a part of them before."""

    async def scenario(tail: Tail) -> None:
        late = tail.preferred
        tail.bookies[late].delay_s = 1.0
        for first in (0, 5, 10):
            tail.write(first, 5, lac=-1)
        for name in "abc".replace(late, ""):
            tail.later(0.7, partial(tail.bookies[name].advance, 4))
        assert await tail.taken() == []
        assert tail.ledger.last_confirmed == 4
        tail.later(0.1, lambda: tail.bookies[late].advance(12))
        assert await tail.taken() == [(5, 9), (10, 12)]

    run(scenario)


def test_an_answer_without_a_new_lac_does_not_end_the_wait() -> None:
    async def scenario(tail: Tail) -> None:
        waiting = await tail.still_waits(3 * POLL_S)
        tail.write(0, 2)
        assert len(await waiting) <= 1
        assert tail.ledger.last_confirmed == 1

    run(scenario)
