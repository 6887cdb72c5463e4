"""Fuzz target for the index: any keys and values in its store, under all its operations.

Leaves the log to `tests.fuzz.disk_targets`.

Invariant: a value that changed without its checksum never counts as a run.
"""

import random
from functools import partial
from typing import Final

from crc32c import crc32c

from bookie.config import KIB, StorageConfig
from bookie.errors import DiskFailedError, FormatError
from bookie.files.disk import StoreTransaction
from bookie.index import index_pages, stored_runs
from bookie.index.index_pages import INDEX_VERSION, CheckpointMeta
from bookie.index.index_runs import Run
from bookie.index.replica_state import ReplicaState, encode_deleted
from bookie.index.stored_runs import RunMove
from bookie.storage.opening import open_parts
from metadata.ids import LedgerId
from tests.fuzz.findings import require
from tests.fuzz.instant import InstantDisk
from tests.fuzz.targets import ParserTarget
from tests.simulation.disk import Platter
from tests.simulation.index_store import MemoryStore, MemoryTransaction
from tests.simulation.loop import run_simulation

CONFIG: Final = StorageConfig(
    segment_bytes_max=64 * KIB, index_map_bytes=KIB, reserve_bytes_min=KIB, reserve_share=0.0
)
LEDGERS: Final = (7, 8)
HIGHEST: Final = 2**63 - 2
RUNS_MAX: Final = 16
Pairs = list[tuple[bytes, bytes]]


def join(pairs: Pairs) -> bytes:
    """Return pairs as bytes: each key and value after its length in one byte."""
    return b"".join(bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in pairs)


def split(data: bytes) -> Pairs:
    """Return the pairs that bytes hold; the last one is cut short if bytes are missing."""
    pairs: Pairs = []
    at = 0
    while at < len(data):
        key = data[at + 1 : at + 1 + data[at]]
        at += 1 + len(key)
        value = data[at + 1 : at + 1 + data[at]] if at < len(data) else b""
        at += 1 + len(value)
        if key:
            pairs.append((key, value))
    return pairs


def seal_pairs(data: bytearray, _rng: random.Random) -> None:
    """Give every value its checksum, in place."""
    at = 0
    while at < len(data):
        key = bytes(data[at + 1 : at + 1 + data[at]])
        at += 1 + len(key)
        if at >= len(data):
            return
        start, end = at + 1, min(len(data), at + 1 + data[at])
        if end - start >= 4:
            crc = crc32c(bytes(data[start : end - 4]), crc32c(key))
            data[end - 4 : end] = crc.to_bytes(4, "little")
        at = end


def sample_index() -> Pairs:
    """Return an index with several runs of each ledger."""
    store = MemoryStore()
    transaction = MemoryTransaction(store)
    index_pages.write_meta(transaction, CheckpointMeta(INDEX_VERSION, 0, 0, 0, 0))
    for ledger in LEDGERS:
        runs: list[Run] = [
            (10 * i + 6, 10 * i, (1 << 32) + 1000 * i, 900 + ledger) for i in range(6)
        ]
        stored_runs.put_runs(transaction, ledger, runs, -1)
    stored_runs.add_live_bytes(transaction, {1: 5_000, 2: 9})
    return [(key, store.pairs[key]) for key in store.keys]


def small_index() -> Pairs:
    """Return an index with the states of a fenced ledger and of a deleted one."""
    store = MemoryStore()
    transaction = MemoryTransaction(store)
    index_pages.write_meta(transaction, CheckpointMeta(INDEX_VERSION, 0, 1 << 32, 0, 0))
    state, deleted = ReplicaState(LedgerId(LEDGERS[0])), LedgerId(2**63 - 1)
    state.fenced, state.master_key, state.lac, state.length = True, b"k" * 32, 3, 12
    values = [(state.ledger_id, state.encode(9)), (deleted, encode_deleted(deleted, has_runs=True))]
    stored_runs.put_runs(transaction, state.ledger_id, [(2, 0, (1 << 32) + 80, 99)], -1)
    index_pages.write_states(transaction, values)
    return [(key, store.pairs[key]) for key in store.keys]


def index_target() -> ParserTarget:
    """Return the target."""
    samples = [sample_index(), small_index()]
    stored = {pair: None for pairs in samples for pair in pairs}

    def check(data: bytes, _origin: bytes, is_sealed: bool) -> bool:
        pairs = split(data)
        store = MemoryStore()
        for key, value in pairs:
            store.assign(key, value)
        genuine = {pair[0]: None for pair in store.pairs.items() if pair in stored}
        found = _look(MemoryTransaction(store))
        if not is_sealed:
            for ledger, run in found:
                key = b"r" + ledger.to_bytes(8, "big") + run[0].to_bytes(8, "big")
                require(key in genuine, "a damaged run was taken for a stored one")
        try:
            run_simulation(partial(_open, store), 1)
        except (FormatError, DiskFailedError):  # the second one: keys that no release writes
            return False
        _change(MemoryTransaction(store), is_sealed=is_sealed)
        return bool(found)

    return ParserTarget("index", check, tuple(map(join, samples)), seal=seal_pairs, weight=0.5)


def _look(transaction: StoreTransaction) -> list[tuple[int, Run]]:
    found: list[tuple[int, Run]] = []
    for ledger in LEDGERS:
        looked = stored_runs.look_up(transaction, ledger, 0, HIGHEST, RUNS_MAX)
        require(looked.known_to >= -1, "what is known begins at the beginning")
        listed = stored_runs.list_runs(transaction, ledger, 0, HIGHEST)
        found += [(ledger, run) for run in looked.runs + (listed or []) if run[0] < HIGHEST]
    after = -1
    while live := stored_runs.scan_segments(transaction, after, stored_runs.LIVE_BYTES):
        require(live[-1][0] > after, "a scan goes on")
        after = live[-1][0]
    return found


async def _open(store: MemoryStore) -> None:
    platter = Platter(stores={"index": store})
    opened = await open_parts(InstantDisk(platter, random.Random(1)), CONFIG)
    meta = index_pages.read_meta(MemoryTransaction(store))
    require(meta is not None, "an opened index has its mark")
    require(opened.index.meta.version <= INDEX_VERSION, "an index of a newer release is refused")


def _change(transaction: StoreTransaction, *, is_sealed: bool) -> None:
    for ledger in LEDGERS:
        stored_runs.put_runs(transaction, ledger, [(24, 13, 9 << 32, 77), (28, 26, 9 << 32, 5)], 56)
        looked = stored_runs.look_up(transaction, ledger, 13, 24, RUNS_MAX)
        # A key of another form between the runs ends the known range, as it must.
        is_found = looked.runs == [(24, 13, 9 << 32, 77)]
        require(is_found or looked.is_unproven or is_sealed, "what was put is found, or in doubt")
        old = ((24, 13, 9 << 32, 77),)
        stored_runs.move_runs(transaction, [RunMove(ledger, old, (24, 13, 10 << 32, 77))])
        looked = stored_runs.look_up(transaction, ledger, 13, 24, RUNS_MAX)
        is_found = looked.runs == [(24, 13, 10 << 32, 77)]
        require(is_found or looked.is_unproven or is_sealed, "what was moved is found")
        steps, done_count = 0, 0
        while not done_count:
            _, done_count = stored_runs.delete_runs(transaction, [ledger], 3)
            steps += 1
            require(steps < 1_000, "a deletion comes to its end")
