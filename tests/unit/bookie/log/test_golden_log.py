"""The bytes of a segment and of the index's values, version 1. All later releases must read them.

For an intended change of format: add a new version and a new golden file, and keep this one.
"""

import asyncio
import random
from functools import partial

from bookie.config import StorageConfig
from bookie.files.index_store import StoreTransaction
from bookie.index import index_pages, replica_state, stored_runs, stored_segments, stored_states
from bookie.index.index_pages import CheckpointMeta
from bookie.index.replica_state import ReplicaState
from bookie.log import records
from bookie.log.log import Log
from bookie.log.records import Record, RecordKind
from bookie.log.recovery_scan import LogReplay, find_segments
from bookie.log.replay import scan
from metadata.ids import EntryId, LedgerId
from tests.golden import GOLDEN
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.index_store import MemoryStore
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_batch

SEGMENT = GOLDEN / "bookie_segment_v1.log"
INDEX = GOLDEN / "bookie_index_v1.txt"
NAME = "log/00000001.log"
CONTENT: list[tuple[int, bytes]] = [
    (RecordKind.MASTER_KEY, records.encode_master_key(LedgerId(7), b"k" * 32)),
    (RecordKind.ADDS, bytes(make_batch(7, 0, [b"zero", b"", b"two"]).data)),
    (RecordKind.ADDS, bytes(make_batch(7, 3, [b"three"], lac=2, length_before=7).data)),
    (RecordKind.EXPLICIT_LAC, records.encode_lac(LedgerId(7), EntryId(3))),
    (RecordKind.FENCE, records.encode_ledger(LedgerId(7))),
    (RecordKind.TOMBSTONE, records.encode_ledger(LedgerId(2**63 - 1))),
]


def new_disk() -> CrashableDisk:
    return CrashableDisk(Platter(), random.Random(1), DiskFaults(delay_s_max=0.0))


def test_segment_has_golden_bytes() -> None:
    async def main() -> bytes:
        disk = new_disk()
        log = Log(disk, StorageConfig(), await find_segments(disk), 0, lambda _group, _error: None)
        running = asyncio.create_task(log.run())
        for kind, body in CONTENT:
            log.append(kind, body, None)
            await log.barrier()
        log.close()
        await running
        return bytes(disk.platter.names[NAME].current)

    assert run_simulation(main, 1) == SEGMENT.read_bytes()


def test_a_segment_of_version_1_is_read() -> None:
    async def main() -> list[tuple[int, bytes]]:
        disk, found = new_disk(), list[tuple[int, bytes]]()
        file = await disk.create(NAME)
        await file.commit(0, [SEGMENT.read_bytes()])

        def apply(record: Record) -> None:
            found.append((record.header.kind, bytes(record.body)))

        outcome = await LogReplay(disk, await find_segments(disk), 0, apply).run()
        assert not outcome.corrupt
        return found

    head, *content = run_simulation(main, 1)
    assert head == (RecordKind.HEAD, records.encode_head(0, 0))
    assert content == CONTENT
    stored, _, _ = scan(memoryview(SEGMENT.read_bytes()), 1 << 32)
    assert stored[-1].header.kind is RecordKind.FOOTER
    runs = records.decode_runs(records.packed_runs(stored[-1].body))
    assert [(run.ledger_id, run.first_entry_id, run.count) for run in runs] == [
        (7, 0, 3),
        (7, 3, 1),
    ]


def index_pairs() -> list[tuple[bytes, bytes]]:
    async def main() -> list[tuple[bytes, bytes]]:
        store = MemoryStore()
        state = ReplicaState(LedgerId(7))
        state.fenced, state.master_key, state.lac, state.length = True, b"k" * 32, 3, 12
        deleted = LedgerId(2**63 - 1)

        def fill(transaction: StoreTransaction) -> None:
            index_pages.write_meta(transaction, CheckpointMeta(1, 0, 0x1_0000_0040, 0, 0))
            stored_runs.put_runs(
                transaction, 7, [(2, 0, 2**32 + 80, 99), (9, 3, 2**32 + 500, 70)], -1
            )
            values = [
                (7, state.encode(9)),
                (deleted, replica_state.encode_deleted(deleted, has_runs=True)),
            ]
            index_pages.write_states(transaction, values)
            stored_segments.add_live_bytes(transaction, {1: 169})

        await store.update(fill)
        return [(key, store.pairs[key]) for key in store.keys]

    return run_simulation(main, 1)


def test_index_has_golden_bytes() -> None:
    lines = [f"{key.hex()} {value.hex()}" for key, value in index_pairs()]
    assert lines == INDEX.read_text().splitlines()


def test_an_index_of_version_1_is_read() -> None:
    async def main() -> None:
        store = MemoryStore()
        for line in INDEX.read_text().splitlines():
            key, value = map(bytes.fromhex, line.split())
            store.assign(key, value)
        meta = await store.view(index_pages.read_meta)
        assert meta is not None
        assert (meta.version, meta.mark_lsn, meta.state_count) == (1, 0x1_0000_0040, 2)
        found = await store.view(lambda t: stored_runs.look_up(t, 7, 1, 5, 9))
        assert found.runs == [(2, 1, 2**32 + 80, 99), (5, 3, 2**32 + 500, 70)]
        ids = LedgerId(7), LedgerId(2**63 - 1)
        first, second = await store.view(lambda t: stored_states.get_states(t, ids))
        assert first is not None
        assert second is not None
        state = replica_state.decode(ids[0], first)
        assert isinstance(state, ReplicaState)
        assert (state.fenced, state.master_key, state.lac, state.highest) == (True, b"k" * 32, 3, 9)
        assert replica_state.decode(ids[1], second) is True
        scan = partial(stored_segments.scan_segments, after=-1, kind=stored_segments.LIVE_BYTES)
        assert await store.view(scan) == [(1, 169)]

    run_simulation(main, 1)
