"""How the writer of a ledger learns that another client ended it, in virtual time (rules 4.8 and
11.7).
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from ledger_client.errors import LedgerNotFoundError
from ledger_client.protocol import append_events as e
from ledger_client.writing.pacing import READ_DELAY_MAX_S
from ledger_client.writing.writer_watch import READ_AGAIN_S, StoredWatch
from metadata.ids import UpdateToken, Version
from tests.support.ledger_client.ledger_world import LEDGER
from tests.support.ledger_client.writer_world import World
from tests.support.ledger_client.writer_world import run as run_world
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of

TOKEN = UpdateToken(b"changed by tests")


class Watched:
    """A writer, and another client that may end its ledger."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reads = ScriptedFaults(reads_of(world.store))
        world.server.faults = self.reads

    def watch(self) -> StoredWatch:
        return StoredWatch(self.world.shell, self.world.services)

    async def begin_recovery(self) -> None:
        stored, version = await self.world.others.get(LEDGER, fresh=True)
        await self.world.others.compare_and_set(stored.with_recovery_begun(TOKEN), version)

    @property
    def has_ended(self) -> bool:
        return self.world.shell.protocol.has_ended


def run(scenario: Callable[[Watched], Awaitable[None]]) -> None:
    run_world(lambda world: scenario(Watched(world)))


def test_a_ledger_that_ended_before_the_watch_was_set_is_noticed() -> None:
    async def scenario(it: Watched) -> None:
        await it.begin_recovery()
        watch = it.watch()
        await asyncio.sleep(2 * READ_DELAY_MAX_S)
        assert it.has_ended
        watch.close()

    run(scenario)


def test_the_end_of_a_ledger_is_noticed_by_the_watch() -> None:
    async def scenario(it: Watched) -> None:
        watch = it.watch()
        await asyncio.sleep(10.0)
        assert not it.has_ended
        await it.begin_recovery()
        await asyncio.sleep(2 * READ_DELAY_MAX_S)
        assert it.has_ended
        assert it.reads.fresh == [True, True]
        watch.close()

    run(scenario)


def test_a_deletion_fails_the_writer() -> None:
    async def scenario(it: Watched) -> None:
        watch = it.watch()
        await asyncio.sleep(1.0)
        await it.world.others.delete(LEDGER)
        await asyncio.sleep(1.0)
        error = it.world.shell.failure
        assert isinstance(error, LedgerNotFoundError)
        assert "another client deleted it" in str(error)
        assert error.ledger_id == LEDGER
        watch.close()

    run(scenario)


def test_a_service_that_is_away_is_read_again_until_it_answers() -> None:
    async def scenario(it: Watched) -> None:
        it.reads.is_away = True
        watch = it.watch()
        await asyncio.sleep(60.0)
        times = it.reads.times
        gaps = [after - before for before, after in pairwise(times)]
        assert len(gaps) >= 60 / READ_AGAIN_S - 1
        assert READ_AGAIN_S / 2 <= min(gaps) <= max(gaps) <= READ_AGAIN_S + 0.1
        await it.begin_recovery()
        it.reads.is_away = False
        await asyncio.sleep(READ_AGAIN_S + 0.1)
        assert it.has_ended
        watch.close()

    run(scenario)


def test_after_the_close_nothing_is_read() -> None:
    async def scenario(it: Watched) -> None:
        watch = it.watch()
        watch.close()
        await asyncio.sleep(5.0)
        await it.begin_recovery()
        await asyncio.sleep(5.0)
        assert (it.reads.times, it.has_ended) == ([], False)

    run(scenario)


@pytest.mark.parametrize("end", ["close", "writer"])
def test_a_read_that_fails_after_the_end_is_not_repeated(end: str) -> None:
    async def scenario(it: Watched) -> None:
        it.reads.is_away, it.reads.arrival_s = True, 3.0
        watch = it.watch()
        await asyncio.sleep(1.0)
        if end == "close":
            watch.close()
        else:
            closed = it.world.metadata.with_recovery_begun(TOKEN)
            it.world.shell.dispatch(e.MetadataSeen(closed, Version(1)))
            assert it.has_ended
        await asyncio.sleep(20.0)
        assert len(it.reads.times) == 1
        watch.close()

    run(scenario)
