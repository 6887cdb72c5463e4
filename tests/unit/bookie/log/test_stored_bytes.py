"""The bytes of a segment and of the index's values, as docs/formats.md describes them."""

import asyncio
import random
from functools import partial

from bookie.config import StorageConfig
from bookie.files.disk import StoreTransaction
from bookie.index import index_pages, replica_state, stored_runs, stored_states
from bookie.index.index_pages import INDEX_VERSION, CheckpointMeta
from bookie.index.replica_state import ReplicaState
from bookie.log import records
from bookie.log.log import Log
from bookie.log.records import Record, RecordKind
from bookie.log.recovery_scan import LogReplay, find_segments
from bookie.log.replay import scan
from metadata.ids import EntryId, LedgerId
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.index_store import MemoryStore
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_batch

NAME = "log/00000001.log"
CONTENT: list[tuple[int, bytes]] = [
    (RecordKind.MASTER_KEY, records.encode_master_key(LedgerId(7), b"k" * 32)),
    (RecordKind.ADDS, bytes(make_batch(7, 0, [b"zero", b"", b"two"]).data)),
    (RecordKind.ADDS, bytes(make_batch(7, 3, [b"three"], lac=2, length_before=7).data)),
    (RecordKind.EXPLICIT_LAC, records.encode_lac(LedgerId(7), EntryId(3))),
    (RecordKind.FENCE, records.encode_ledger(LedgerId(7))),
    (RecordKind.TOMBSTONE, records.encode_ledger(LedgerId(2**63 - 1))),
]
SEGMENT = bytes.fromhex(
    "525101061000000000000000010000000000000000000000ea9a70421d511f890000000000000000"
    "00000000000000005251010528000000300000000100000030000000010000006d0115b46e2b0b36"
    "07000000000000006b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "525101014f00000078000000010000007800000001000000000000003014bb924251010003000000"
    "07000000000000000000000000000000ffffffffffffffff000000000000000007000000309f0649"
    "040000000000000003000000bd4fd43708000000181fc8cf7a65726f74776f525101013d000000e7"
    "00000001000000e7000000010000000000000027f2a5224251010001000000070000000000000003"
    "0000000000000002000000000000000700000000000000050000005dc9c0e905000000758501a974"
    "687265655251010310000000440100000100000044010000010000009bd1c84c13d37b3e07000000"
    "0000000003000000000000005251010208000000740100000100000074010000010000008eb77176"
    "50990826070000000000000052510104080000009c010000010000009c01000001000000bf7091ca"
    "ef7b99f4ffffffffffffff7f525101073c000000c401000001000000c401000001000000e5703e7f"
    "89d0d1db0300000007000000000000000000000000000000780000006f0000000100000007000000"
    "000000000300000000000000e70000005d000000c4010000"
)
INDEX = [
    "670000000000000001 a900000000000000b1033ee5",
    "6d 010000004000000001000000020000000000000023d0f1851c790629",
    (
        "7200000000000000070000000000000002 0000000000000000ffffffffffffffff5000000001000"
        "00063000000a328849b"
    ),
    (
        "7200000000000000070000000000000009 03000000000000000200000000000000f401000001000"
        "00046000000be8a568a"
    ),
    (
        "730000000000000007 11030000000000000009000000000000000c000000000000006b6b6b6b6b6"
        "b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6bb78d6da2"
    ),
    (
        "737fffffffffffffff 0cffffffffffffffffffffffffffffffff000000000000000000000000000"
        "00000000000000000000000000000000000000000000000000000945d9c27"
    ),
]


def new_disk() -> CrashableDisk:
    return CrashableDisk(Platter(), random.Random(1), DiskFaults(delay_s_max=0.0))


def test_a_segment_has_these_bytes() -> None:
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

    assert run_simulation(main, 1) == SEGMENT


def test_these_bytes_are_read_as_a_segment() -> None:
    async def main() -> list[tuple[int, bytes]]:
        disk, found = new_disk(), list[tuple[int, bytes]]()
        file = await disk.create(NAME)
        await file.commit(0, [SEGMENT])

        def apply(record: Record) -> None:
            found.append((record.header.kind, bytes(record.body)))

        outcome = await LogReplay(disk, await find_segments(disk), 0, apply).run()
        assert not outcome.corrupt
        return found

    head, *content = run_simulation(main, 1)
    assert head == (RecordKind.HEAD, records.encode_head(0, 0))
    assert content == CONTENT
    stored, _, _ = scan(memoryview(SEGMENT), 1 << 32)
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
            index_pages.write_meta(
                transaction, CheckpointMeta(INDEX_VERSION, 0, 0x1_0000_0040, 0, 0)
            )
            stored_runs.put_runs(
                transaction, 7, [(2, 0, 2**32 + 80, 99), (9, 3, 2**32 + 500, 70)], -1
            )
            values = [
                (7, state.encode(9)),
                (deleted, replica_state.encode_deleted(deleted, has_runs=True)),
            ]
            index_pages.write_states(transaction, values)
            stored_runs.add_live_bytes(transaction, {1: 169})

        await store.update(fill)
        return [(key, store.pairs[key]) for key in store.keys]

    return run_simulation(main, 1)


def test_an_index_has_these_bytes() -> None:
    assert [f"{key.hex()} {value.hex()}" for key, value in index_pairs()] == INDEX


def test_these_bytes_are_read_as_an_index() -> None:
    async def main() -> None:
        store = MemoryStore()
        for line in INDEX:
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
        scan = partial(stored_runs.scan_segments, after=-1, kind=stored_runs.LIVE_BYTES)
        assert await store.view(scan) == [(1, 169)]

    run_simulation(main, 1)
