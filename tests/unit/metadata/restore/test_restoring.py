"""Restore into an empty root: complete, resumable, and refused anywhere else (10.6)."""

from dataclasses import replace
from random import Random

import pytest

from metadata.errors import (
    ClusterNotFoundError,
    DumpFormatError,
    MetadataError,
    RestoreUnfinishedError,
    RootNotEmptyError,
    VersionConflictError,
)
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.cluster import ensure_cluster, require_cluster
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.restore.adjusting import (
    CLOSED_VERSIONS_MARGIN,
    LEDGER_IDS_MARGIN,
    MOVES_OF_A_POSITION,
    OPEN_VERSIONS_MARGIN,
)
from metadata.restore.restore_record import RestoreState, read_restore
from metadata.restore.restoring import batches
from metadata.store.interface import (
    MULTI_BYTES_MAX,
    MULTI_OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    Create,
    Stored,
    multi_size,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.dumps import dump_of, paths_in_dump, restore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.support.sample_ledgers import closed_ledger, open_ledger
from tests.unit.metadata.conftest import NOW_MS

BOOKIE = BookieId("bookie-a")
OPEN, CLOSED = LedgerId(901), LedgerId(902)
STARTS = 3


class InterruptedRestoreError(Exception):
    """The process of a restore ended here."""


@pytest.fixture
async def dump(rng: Random) -> list[bytes]:
    """Return the dump of a cluster with a bookie, an open ledger and a closed one."""
    store = MemoryMetadataStore(MemoryMetadataServer())
    await ensure_cluster(store, rng)
    await LedgerIdAllocator(store, rng).allocate()
    ledgers, cookies = LedgerStore(store, rng, lambda: NOW_MS), CookieStore(store)
    await ledgers.create(open_ledger("abc", ledger_id=OPEN))
    await ledgers.create(closed_ledger("abc", ledger_id=CLOSED))
    record = CookieRecord(BOOKIE, bytes(16), NOW_MS, 3, bytes(32))
    version = await cookies.create(record)
    for _ in range(STARTS):
        version = await cookies.compare_and_set(record, version)
    lines = await dump_of(store)
    await store.aclose()
    return lines


async def test_a_restored_cluster_is_the_same_but_for_what_must_not_go_back(
    store: MemoryMetadataStore, rng: Random, dump: list[bytes]
) -> None:
    record = await restore(store, dump)
    assert record.state is RestoreState.FINISHED
    assert len(await require_cluster(store)) == 16
    assert len(await paths_in_dump(store)) == len(dump) - 2
    ledgers = LedgerStore(store, rng, lambda: NOW_MS)
    found, version = await ledgers.get(CLOSED)
    assert found == closed_ledger("abc", ledger_id=CLOSED)
    assert version > CLOSED_VERSIONS_MARGIN
    found, version = await ledgers.get(OPEN)
    assert (found.state, version) == (LedgerState.IN_RECOVERY, OPEN_VERSIONS_MARGIN)
    cookie, cookie_version = await CookieStore(store).get(BOOKIE)
    assert (cookie_version, cookie.starts_at(cookie_version)) == (0, STARTS)
    assert await LedgerIdAllocator(store, rng).allocate() > LEDGER_IDS_MARGIN


async def test_a_root_with_anything_in_it_is_refused(
    store: MemoryMetadataStore, rng: Random, dump: list[bytes]
) -> None:
    await store.create("/bookies/b", b"", ephemeral=True)
    with pytest.raises(RootNotEmptyError, match="/bookies exists"):
        await restore(store, dump)
    assert await read_restore(store) is None, "nothing was written"


async def test_a_cluster_is_refused(
    store: MemoryMetadataStore, rng: Random, dump: list[bytes]
) -> None:
    instance = await ensure_cluster(store, rng)
    with pytest.raises(RootNotEmptyError, match="/instance exists"):
        await restore(store, dump)
    assert await require_cluster(store) == instance
    other = MemoryMetadataStore(MemoryMetadataServer())
    await restore(other, dump)
    with pytest.raises(RootNotEmptyError, match="/instance exists"):
        await restore(other, dump)


async def test_an_interrupted_restore_is_no_cluster_and_is_continued(
    store: MemoryMetadataStore, rng: Random, dump: list[bytes]
) -> None:
    def interrupt(_count: int) -> None:
        raise InterruptedRestoreError

    for _ in range(2):
        with pytest.raises(InterruptedRestoreError):
            await restore(store, dump, interrupt)
        with pytest.raises(RestoreUnfinishedError, match="again with the same file"):
            await require_cluster(store)
        with pytest.raises(RestoreUnfinishedError):
            await ensure_cluster(store, rng)
    await restore(store, dump)
    await require_cluster(store)
    assert len(await paths_in_dump(store)) == len(dump) - 2


async def test_a_continued_restore_reads_each_node_once(
    store: MemoryMetadataStore, dump: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not once for each of its versions, of which there are thousands."""
    reads: list[str] = []
    get = store.get

    async def counted(path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        reads.append(path)
        return await get(path, fresh=fresh, agreed=agreed)

    def interrupt(count: int) -> None:
        done.append(count)
        if len(done) == 3:
            raise InterruptedRestoreError

    done: list[int] = []
    with pytest.raises(InterruptedRestoreError):
        await restore(store, dump, interrupt)
    monkeypatch.setattr(store, "get", counted)
    await restore(store, dump)
    await require_cluster(store)
    assert 0 < len(reads) < MULTI_OPERATIONS_MAX, "three batches had so many writes each"


async def test_another_dump_does_not_continue_a_restore(
    store: MemoryMetadataStore, dump: list[bytes]
) -> None:
    def interrupt(_count: int) -> None:
        raise InterruptedRestoreError

    with pytest.raises(InterruptedRestoreError):
        await restore(store, dump, interrupt)
    other = MemoryMetadataStore(MemoryMetadataServer())
    await ensure_cluster(other, Random(1))
    with pytest.raises(RootNotEmptyError, match="of another dump"):
        await restore(store, await dump_of(other))


@pytest.mark.parametrize("act", ["lost", "dropped", "late", "refused"])
@pytest.mark.parametrize("before", range(6))
async def test_unknown_outcomes_are_decided(
    store: MemoryMetadataStore,
    faults: ScriptedFaults,
    dump: list[bytes],
    act: str,
    before: int,
) -> None:
    faults.acts = [""] * before + [act]
    for _ in range(2):
        try:
            await restore(store, dump)
        except MetadataError:
            continue
        break
    await require_cluster(store)
    assert len(await paths_in_dump(store)) == len(dump) - 2
    found = await read_restore(store)
    assert found is not None
    assert found[0].state is RestoreState.FINISHED


async def test_nothing_is_written_of_a_dump_that_is_not_complete(
    store: MemoryMetadataStore, dump: list[bytes]
) -> None:
    with pytest.raises(DumpFormatError):
        await restore(store, dump[:-1])
    with pytest.raises(ClusterNotFoundError):
        await require_cluster(store)


async def test_a_dump_without_a_cluster_is_refused(store: MemoryMetadataStore) -> None:
    await store.create("/ledgers", b"")
    lines = await dump_of(store)
    with pytest.raises(DumpFormatError, match="no /instance"):
        await restore(MemoryMetadataStore(MemoryMetadataServer()), lines)


def test_batches_keep_the_limits_of_a_multi() -> None:
    small = [Create(f"/{number}", b"") for number in range(MULTI_OPERATIONS_MAX + 1)]
    assert [len(batch) for batch in batches(small)] == [MULTI_OPERATIONS_MAX, 1]
    large = [Create(f"/{number}", bytes(VALUE_BYTES_MAX // 2)) for number in range(3)]
    found = list(batches([*large, *small]))
    assert [each for batch in found for each in batch] == [*large, *small]
    assert all(len(each) == 1 or multi_size(each) <= MULTI_BYTES_MAX for each in found)


async def test_no_change_from_before_a_restore_applies(
    store: MemoryMetadataStore, rng: Random
) -> None:
    old = MemoryMetadataStore(MemoryMetadataServer())
    await ensure_cluster(old, rng)
    before = LedgerStore(old, rng, lambda: NOW_MS)
    opened = open_ledger("abc", ledger_id=CLOSED)
    versions = [await before.create(opened)]
    recovering = opened.with_recovery_begun(UpdateToken(bytes(16)))
    closed = recovering.with_recovered((), EntryId(9), 100, UpdateToken(bytes(16)))
    for metadata in (recovering, closed):
        versions.append(await before.compare_and_set(metadata, versions[-1]))
    dump = await dump_of(old)
    fragment = closed.fragments[0]
    for number in range(2 * MOVES_OF_A_POSITION):  # by repair, after the dump
        to = BookieId(f"bookie-{number}")
        moved = replace(fragment, ensemble=(to, *fragment.ensemble[1:]))
        closed = closed.with_fragment(0, moved, UpdateToken(bytes(16)))
        versions.append(await before.compare_and_set(closed, versions[-1]))
    await restore(store, dump)
    after = LedgerStore(store, rng, lambda: NOW_MS)
    stale = opened.with_closed(EntryId(4), 50, UpdateToken(b"s" * 16))
    for version in versions:
        with pytest.raises(VersionConflictError):
            await after.compare_and_set(stale, version)
    assert (await after.get(CLOSED, fresh=True))[0].last_entry_id == 9
