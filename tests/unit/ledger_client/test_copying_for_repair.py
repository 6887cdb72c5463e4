"""Copies by repair, which has the master key of a ledger and not its password (rule 9.1)."""

from dataclasses import replace
from random import Random

import pytest

from bookie.wire.batch import BatchView, build_batch
from ledger_client.digest import LedgerKeys, verify
from ledger_client.errors import DigestMismatchError, NotEnoughBookiesError
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import DigestType, LedgerMetadata, QuorumSpec
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from tests.support.ledger_client.copying_world import World, run, write
from tests.support.ledger_client.ledger_world import LEDGER, length, payload, payloads
from tests.support.sample_ledgers import fragments

HMAC = DigestType.HMAC_SHA256


def without_password(world: World) -> None:
    world.copier_keys = LedgerKeys.with_master_key(world.metadata, world.keys.master_key)


def check(world: World, first: int, last: int, name: str = "d") -> None:
    """Check that a bookie holds these entries in batches that a client with the password reads."""
    held = world.bookies[name].entries
    assert sorted(held) == list(range(first, last + 1))
    for entry_id, (batch, _) in held.items():
        verify(batch, world.keys)
        assert batch.entry(entry_id - batch.header.first_entry_id) == payload(entry_id)


def sent(world: World) -> list[bytes]:
    return [bytes(batch.data) for _, _, batch in world.bookies.adds]


@pytest.mark.parametrize("digest", list(DigestType))
def test_a_client_with_the_password_reads_the_copy(digest: DigestType) -> None:
    async def scenario(world: World) -> None:
        without_password(world)
        write(world, 0, 40)
        after, _ = await world.copy()
        assert after.fragments == fragments((0, "dbc"), (40, "abc"))
        check(world, 0, 39)

    run(scenario, digest=digest)


def test_a_batch_with_a_mac_is_copied_completely_at_both_ends_of_the_fragment() -> None:
    async def scenario(world: World) -> None:
        without_password(world)
        write(world, 0, 75, per_batch=7)
        before = [bytes(world.bookies["a"].entries[number][0].data) for number in range(35, 75, 7)]
        after, _ = await world.copy(40)
        assert after.fragments == fragments((0, "abc"), (40, "dbc"))
        assert sent(world) == before, "as the writer made them"
        check(world, 35, 74)
        assert world.progress[-1].copied_entries == 31, "entries 40 to 70"
        assert world.progress[-1].copied_bytes == length(71) - length(40)

    run(scenario, digest=HMAC, closed_at=70)


def test_sources_whose_batches_overlap() -> None:
    async def scenario(world: World) -> None:
        without_password(world)
        write(world, 0, 40, per_batch=7, to="a")
        write(world, 0, 40, per_batch=5, to="b")
        for gap in range(7, 14):
            del world.bookies["a"].entries[gap]
        for gap in range(20, 25):
            del world.bookies["b"].entries[gap]
        await world.copy()
        check(world, 0, 39)

    run(scenario, (0, "ab"), (40, "ab"), quorum=QuorumSpec(2, 2, 1), digest=HMAC)


def test_a_copy_continues_over_entries_of_an_earlier_attempt() -> None:
    async def scenario(world: World) -> None:
        without_password(world)
        write(world, 0, 40, per_batch=7, to="a,b,c")
        write(world, 0, 10, per_batch=5, to="d")
        await world.copy()
        check(world, 0, 39)

    run(scenario, digest=HMAC, closed_at=39)


def test_damage_is_detected_without_the_password() -> None:
    async def scenario(world: World) -> None:
        without_password(world)
        write(world, 0, 40)
        for entry_id in range(0, 40, 5):
            world.bookies.damage("a", entry_id)
        await world.copy()
        check(world, 0, 39)
        for name in "bc":
            world.bookies.damage(name, 17)
        world.bookies["d"].entries.clear()
        await world.change(lambda now: world.metadata)
        with pytest.raises(DigestMismatchError) as raised:
            await world.copy()
        assert raised.value.entry_id == 15

    run(scenario, digest=HMAC)


def test_entries_with_valid_crc_and_other_digests_are_damage() -> None:
    async def scenario(world: World) -> None:
        without_password(world)
        write(world, 0, 40)
        seed, key = world.keys.seed + 1, b"m" * 32
        for name in "abc":
            data = build_batch(
                LEDGER, EntryId(10), EntryId(9), length(10), payloads(10, 5), seed, key
            )
            for number in range(10, 15):
                world.bookies[name].entries[number] = (BatchView(data), 0)
        with pytest.raises(DigestMismatchError, match="fails its digest"):
            await world.copy()

    run(scenario, digest=HMAC)


@pytest.mark.parametrize("state", [Lifecycle.DRAINING, Lifecycle.LOST])
def test_a_bookie_that_is_not_active_becomes_no_member(state: Lifecycle) -> None:
    """Rule 9.8: it may have been found unnamed before it was marked, and be removed soon."""

    async def scenario(world: World) -> None:
        write(world, 0, 60)
        world.lifecycles = LifecycleStore(world.store, Random(4))
        await world.lifecycles.change(BookieId("d"), state, "", 0)
        with pytest.raises(NotEnoughBookiesError, match=f"d is {state}: it is not made a member"):
            await world.copy()
        assert (await world.stored()).fragments == world.metadata.fragments, "and no mark is left"

    run(scenario, closed_at=59)


def test_the_state_is_read_after_every_look_at_the_mark() -> None:
    """Rule 9.8: a compare-and-set that fails is not repeated on what was read before it."""

    def elsewhere(now: LedgerMetadata) -> LedgerMetadata:
        other = replace(now.fragments[1], incoming=(BookieId("f"),))
        return now.with_fragment(1, other, now.update_token)

    async def scenario(world: World) -> None:
        write(world, 0, 60)
        states = world.lifecycles = LifecycleStore(world.store, Random(4))

        async def meddle() -> None:
            world.ledgers.before_naming = None
            await states.change(BookieId("d"), Lifecycle.DRAINING, "", 0)
            await world.change(elsewhere)

        world.ledgers.before_naming = meddle
        with pytest.raises(NotEnoughBookiesError, match="d is draining"):
            await world.copy()
        assert (await world.stored()).fragments[0] == world.metadata.fragments[0]

    run(scenario, closed_at=59)
