"""Claims of ledgers: one worker at a time, for one session."""

import asyncio
import random

import msgpack
import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.ids import LedgerId
from metadata.paths import REPAIR_CLAIMS, repair_claim_path
from metadata.repair.claims import (
    CLAIM_CODEC,
    REPORT_INTERVAL_S,
    Claim,
    ClaimStore,
    HeldClaim,
    unpack_claim,
)
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

L = LedgerId(17)
PATH = repair_claim_path(L)


async def claimed(claims: ClaimStore, worker_id: str = "worker-a", now_ms: int = 5) -> HeldClaim:
    """Return the claim of ledger 17, which no worker holds."""
    held = await claims.claim(L, worker_id, now_ms)
    assert held is not None
    return held


async def test_one_worker_holds_a_claim(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = ClaimStore(store, rng), ClaimStore(other_store, rng)
    assert await there.get_all() == []
    held = await claimed(here)
    assert held.is_held
    assert held.ledger_id == L
    assert (await store.get(PATH)).ephemeral
    assert await there.claim(L, "worker-b", 6) is None
    assert await here.claim(L, "worker-a", 7) is None, "another task of this worker"
    assert await there.get_all() == [Claim(L, "worker-a", 5)]
    await held.release()
    assert not held.is_held
    again = await claimed(there, "worker-b")
    await held.release()
    assert again.is_held
    assert await here.get_all() == [Claim(L, "worker-b", 5)]
    await again.release()


async def test_claims_are_listed_in_the_order_of_their_ledgers(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    claims = ClaimStore(store, rng)
    held = [await claims.claim(LedgerId(i), "worker-a", i) for i in (100, 3, 20)]
    await store.create(f"{REPAIR_CLAIMS}/not a ledger", b"")
    assert [claim.ledger_id for claim in await claims.get_all()] == [3, 20, 100]
    for claim in held:
        assert claim is not None
        await claim.release()


async def test_progress_is_written_now_and_then(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    claims = ClaimStore(store, rng)
    held = await claimed(claims)
    for copied in range(1_000):
        held.report(copied, 999, "bookie-b")
        await asyncio.sleep(0.01)
    await asyncio.sleep(REPORT_INTERVAL_S)
    assert await claims.get_all() == [Claim(L, "worker-a", 5, 999, 999, "bookie-b")]
    assert 2 <= faults.writes.count("compare_and_set") <= 4
    await held.release()


@pytest.mark.parametrize("act", ["lost", "dropped", "late", "refused"])
async def test_progress_is_written_after_a_failed_write(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    claims = ClaimStore(store, rng)
    held = await claimed(claims)
    faults.acts = [act]
    held.report(1, 9, "bookie-b")
    await asyncio.sleep(3 * REPORT_INTERVAL_S)
    held.report(2, 9, "bookie-b")
    await asyncio.sleep(2 * REPORT_INTERVAL_S)
    assert held.is_held
    assert [claim.copied_bytes for claim in await claims.get_all()] == [2]
    await held.release()


async def test_a_claim_ends_with_its_session(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = ClaimStore(store, rng), ClaimStore(other_store, rng)
    held = await claimed(here)
    store.suspend()
    assert held.is_held, "the session may still live"
    store.expire()
    assert not held.is_held
    other = await claimed(there, "worker-b")
    store.resume()
    await asyncio.sleep(1)  # it has a new session
    assert not held.is_held
    assert await here.claim(L, "worker-a", 6) is None
    held.report(1, 2, "bookie-b")
    await held.release()
    assert other.is_held
    await other.release()
    assert (await claimed(here)).is_held


async def test_a_claim_that_was_removed_is_noticed(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    held = await claimed(ClaimStore(store, rng))
    await other_store.delete(PATH, (await other_store.get(PATH)).version)
    other = await claimed(ClaimStore(other_store, rng), "worker-b")
    held.report(1, 2, "bookie-b")
    await until(lambda: not held.is_held)
    await held.release()
    assert other.is_held
    await other.release()


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_an_unknown_outcome_is_decided(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    claims = ClaimStore(store, rng)
    faults.acts = [act]
    held = await claimed(claims)
    await asyncio.sleep(2 * faults.late_s)
    assert held.is_held
    assert await claims.get_all() == [Claim(L, "worker-a", 5)]
    await held.release()
    assert await claims.get_all() == []


async def test_a_refused_claim_is_an_error_and_may_be_repeated(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    claims = ClaimStore(store, rng)
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await claims.claim(L, "worker-a", 5)
    held = await claimed(claims)
    faults.acts = ["refused"]  # the claim stays until the session ends, but this worker can have it
    await held.release()
    assert not held.is_held
    assert (await claimed(claims)).is_held


async def test_an_own_claim_of_an_earlier_session_is_replaced(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    claims = ClaimStore(store, rng)
    held = await claimed(claims)
    value = (await store.get(PATH)).value
    store.expire()
    await asyncio.sleep(1)
    await other_store.create(PATH, value)
    assert (await claimed(claims)).is_held
    assert not held.is_held


def test_a_claim_round_trips() -> None:
    claim = Claim(L, "worker-a", 5, 10, 20, "bookie-b")
    assert (
        unpack_claim(L, pack_held(HeldNode(b"i", 9, CLAIM_CODEC.pack("a claim", claim)))) == claim
    )


@pytest.mark.parametrize(
    "content",
    [
        [1, b"worker-a", 5, 10, 20, ""],
        [1, "worker-a", -1, 10, 20, ""],
        [1, "worker-a", 5, "10", 20, ""],
        [1, "worker-a", 5, 10, True, ""],
        [1, "worker-a", 5, 10, 20, None],
        [1, "worker-a", 5, 10, 20],
        [2, "worker-a", 5, 10, 20, ""],
    ],
)
def test_other_values_are_a_format_error(content: list[object]) -> None:
    value = pack_held(HeldNode(b"i", 9, msgpack.packb(content)))
    with pytest.raises(MetadataFormatError, match=PATH):
        unpack_claim(L, value)


async def test_a_claim_of_another_worker_is_found_without_a_write(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    """A create that fails is a transaction in ZooKeeper's log."""
    held = await claimed(ClaimStore(other_store, rng))
    await store.create(f"{REPAIR_CLAIMS}/not a ledger", b"")
    claims, writes = ClaimStore(store, rng), len(faults.writes)
    assert await claims.claimed_by_others() == {L}
    assert await claims.claim(L, "worker-b", 6) is None
    assert len(faults.writes) == writes
    await held.release()
    assert await claims.claimed_by_others() == frozenset()


async def test_a_claim_that_could_not_be_removed_is_taken_over(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    claims, others = ClaimStore(store, rng), ClaimStore(store, rng)
    held = await claims.claim(L, "worker", 1)
    assert held is not None
    faults.is_away = True
    await held.release()
    faults.is_away = False
    assert await others.claimed_by_others() == {L}
    assert await claims.claimed_by_others() == frozenset()
    assert await claims.claim(L, "worker", 2) is not None
