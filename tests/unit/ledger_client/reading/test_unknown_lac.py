"""An open ledger whose bookies are silent is unreadable, and never looks like an empty one (rule
8.1).
"""

import pytest

from ledger_client.bookies.pool import CallFailure
from ledger_client.errors import EntryNotFoundError, QuorumTimeoutError
from ledger_client.reading.reader import LedgerReader
from metadata.ids import BookieId, EntryId
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world
from tests.support.ledger_client.tail_world import TOKEN
from tests.unit.ledger_client.reading.test_reader import check, fill, open_reader


def silence(world: World, failure: CallFailure | None, names: str = "abc") -> None:
    for name in names:
        world.bookies[name].failure = failure


async def refuses(reader: LedgerReader) -> None:
    with pytest.raises(QuorumTimeoutError, match="no bookie of the last fragment"):
        async for _ in reader.read():
            pytest.fail("no entry is known")
    with pytest.raises(QuorumTimeoutError):
        await reader.learn_last_confirmed()


def test_a_ledger_of_silent_bookies_is_not_empty() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        silence(world, CallFailure.TIMEOUT)
        async with await open_reader(world) as reader:
            assert reader.last_confirmed == -1
            await refuses(reader)
            silence(world, None)
            check([batch async for batch in reader.read()], 0, 19)
            silence(world, CallFailure.LOST)
            assert await reader.learn_last_confirmed() == 19

    run_world(scenario)


def test_one_bookie_without_entries_does_not_speak_for_the_others() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        world.bookies["c"].entries.clear()
        silence(world, CallFailure.LOST, "ab")
        async with await open_reader(world) as reader:
            await refuses(reader)
            silence(world, None, "a")
            check([batch async for batch in reader.read()], 0, 19)

    run_world(scenario)


def test_an_empty_ledger_reads_as_empty() -> None:
    async def scenario(world: World) -> None:
        silence(world, CallFailure.LOST, "a")
        async with await open_reader(world) as reader:
            assert await reader.learn_last_confirmed() == -1
            assert [batch async for batch in reader.read()] == []

    run_world(scenario)


def test_entries_that_the_metadata_proves_are_read_without_a_lac() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        others = BookieId("d"), BookieId("e"), BookieId("f")
        changed = world.metadata.with_ensemble_change(EntryId(20), others, TOKEN)
        await world.ledgers.compare_and_set(changed, world.version)
        silence(world, CallFailure.LOST, "def")
        async with await open_reader(world) as reader:
            assert reader.last_confirmed == 19
            check([batch async for batch in reader.read(0, 19)], 0, 19)
            await refuses(reader)
            with pytest.raises((QuorumTimeoutError, EntryNotFoundError)):
                await reader.read_entry(20)

    run_world(scenario)
