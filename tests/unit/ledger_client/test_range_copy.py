"""Repair of a range on a member that lost it: only the range, and only verified entries (9.12)."""

import pytest

from ledger_client.copying import RangeCopier
from ledger_client.errors import DigestMismatchError, LedgerError
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import DigestType, QuorumSpec
from tests.support.ledger_client.copying_world import World, run, write
from tests.support.ledger_client.ledger_world import payload

A = BookieId("a")


async def repair(world: World, first: int, last: int) -> int:
    copier = RangeCopier(
        pool=world.bookies.pool,
        ledgers=world.ledgers,
        keys=world.copier_keys,
        config=world.config,
        rng=world.ledgers._rng,
        limits=world.limits,
        throttle=world.throttle,
        on_progress=world.on_progress,
    )
    try:
        return await copier.copy(EntryId(first), EntryId(last), A)
    finally:
        assert world.bookies.attached == 0


def lose(world: World, name: str, first: int, last: int) -> None:
    for entry_id in range(first, last + 1):
        del world.bookies[name].entries[entry_id]


@pytest.mark.parametrize("digest", list(DigestType))
def test_only_the_range_is_read_and_stored(digest: DigestType) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40, per_batch=1)
        before = await world.stored()
        lose(world, "a", 10, 14)
        assert await repair(world, 10, 14) == sum(len(payload(number)) for number in range(10, 15))
        stored = [
            number
            for _, bookie_id, batch in world.bookies.adds
            for number in range(batch.header.first_entry_id, batch.header.last_entry_id + 1)
            if bookie_id == A
        ]
        assert stored == [10, 11, 12, 13, 14]
        assert len(world.bookies.adds) == len({id(batch) for _, _, batch in world.bookies.adds})
        held = world.bookies["a"].entries
        assert sorted(held) == list(range(40))
        batch, _ = held[12]
        assert batch.entry(12 - batch.header.first_entry_id) == payload(12)
        assert world.progress[-1].copied_entries == world.progress[-1].total_entries == 5
        assert await world.stored() == before, "the metadata does not change"

    run(scenario, digest=digest)


def test_a_damaged_source_is_passed_over() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        lose(world, "a", 10, 14)
        world.bookies.damage("b", 12)
        await repair(world, 10, 14)
        batch, _ = world.bookies["a"].entries[12]
        assert batch.entry(12 - batch.header.first_entry_id) == payload(12)

    run(scenario)


@pytest.mark.parametrize("quorum", [QuorumSpec(2, 2, 1), QuorumSpec(1, 1, 1)])
def test_nothing_is_stored_that_was_not_verified(quorum: QuorumSpec) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40, to=",".join(names))
        lose(world, "a", 10, 14)
        for name in names[1:]:
            world.bookies.damage(name, 12)
        with pytest.raises(LedgerError) as raised:
            await repair(world, 10, 14)
        assert isinstance(raised.value, DigestMismatchError) or raised.value.entry_id == 10
        assert world.bookies.adds == []

    names = "ab"[: quorum.ensemble_size]
    run(scenario, (0, names), (40, names), quorum=quorum)
