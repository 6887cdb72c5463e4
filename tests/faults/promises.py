"""Promises that a storage made in another process, and the check that they are kept.

Leaves making promises to `storage_writer`. The check uses the storage's public calls.

Format: one line per fact, written at once: a word, a ledger id and two numbers. An attempt is
written before its call, and a promise as soon as it is answered.
"""

import struct
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from bookie.config import KIB, StorageConfig
from bookie.files.disk_real import RealDisk
from bookie.storage.answers import ReadResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.support.bookie.batches import make_batch
from tests.support.bookie.storage_fixture import KEY, add

READ_BYTES: Final = 1 << 20
NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
_PATTERN: Final = struct.Struct("<QQ")
_PATTERNS_MAX: Final = 16

CONFIG: Final = StorageConfig(
    segment_bytes_max=12 * KIB,
    checkpoint_log_bytes=24 * KIB,
    checkpoint_records=60,
    transaction_runs_max=20,
    index_map_bytes=64 * KIB,
    run_bytes_max=4 * KIB,
    recent_bytes_max=4 * KIB,
    reserve_bytes_min=KIB,
    reserve_share=0.0,
    disk_high_mark=1.0,
    disk_low_mark=0.999999,
    clean_interval_s=0.03,
    clean_mean_run_bytes_min=2 * KIB,
    clean_live_share_max=0.7,
)
"""Small enough that a second of writing rolls, checkpoints and cleans many times."""


class Word(Enum):
    """Subject of a line; words in -ING are written before the call."""

    OPEN = "open"
    ADDING = "adding"
    ADDED = "added"
    FENCING = "fencing"
    FENCED = "fenced"
    TELLING = "telling"
    TOLD = "told"
    DELETING = "deleting"
    DELETED = "deleted"
    DAMAGED = "damaged"
    """A checkpoint has stored that a segment is damaged."""


@dataclass(slots=True)
class Promised:
    """Facts about one ledger."""

    added: dict[int, None] = field(default_factory=dict)
    end: int = 0
    """No entry from this id on was tried."""
    lac: int = -1
    lac_tried: int = -1
    is_fence_tried: bool = False
    is_fenced: bool = False
    is_delete_tried: bool = False
    is_deleted: bool = False


@dataclass(slots=True)
class Promises:
    """Facts about every ledger."""

    ledgers: dict[int, Promised] = field(default_factory=dict)
    opens: int = 0
    damage_count: int = 0
    """Number of checkpoints that stored damage."""

    @property
    def added_count(self) -> int:
        """Number of entries that were acknowledged."""
        return sum(len(ledger.added) for ledger in self.ledgers.values())

    @property
    def fence_count(self) -> int:
        """Number of fences that were acknowledged."""
        return sum(ledger.is_fenced for ledger in self.ledgers.values())

    def take(self, output: bytes) -> None:
        """Add complete lines of a writer's output; the last may be cut."""
        for line in output[: output.rfind(b"\n") + 1].splitlines():
            word, ledger_id, low, high = line.decode().split()
            self._take(Word(word), int(ledger_id), int(low), int(high))

    def _take(self, word: Word, ledger_id: int, low: int, high: int) -> None:
        if word is Word.OPEN:
            self.opens += 1
            return
        if word is Word.DAMAGED:
            self.damage_count += 1
            return
        known = self.ledgers.setdefault(ledger_id, Promised())
        match word:
            case Word.ADDING:
                known.end = max(known.end, high + 1)
                known.lac_tried = max(known.lac_tried, low - 1)
            case Word.ADDED:
                known.added.update(dict.fromkeys(range(low, high + 1)))
            case Word.FENCING:
                known.is_fence_tried = True
            case Word.FENCED:
                known.is_fenced = True
            case Word.TELLING:
                known.lac_tried = max(known.lac_tried, low)
            case Word.TOLD:
                known.lac = max(known.lac, low)
            case Word.DELETING:
                known.is_delete_tried = True
            case Word.DELETED:
                known.is_deleted = True


@dataclass(slots=True)
class Audit:
    """Comparison of a storage's answers with its promises."""

    served: int = 0
    unknown: int = 0
    """Promised entries for which the storage answers UNKNOWN."""
    lost: list[str] = field(default_factory=list)
    """Promised entries answered with "no such entry" or "no such ledger"."""
    wrong: list[str] = field(default_factory=list)
    """Bytes that differ from those given, or that no writer gave."""
    forgotten: list[str] = field(default_factory=list)
    """Lost fences, tombstones and LACs, and LACs that no writer sent."""

    @property
    def violations(self) -> list[str]:
        """All violations, which no damage excuses."""
        return self.lost + self.wrong + self.forgotten


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    """Return the only payload of an entry, which contains its id."""
    draw = entry_id * 37 + ledger_id * 11
    size = _PATTERN.size + draw % (_PATTERN.size * (_PATTERNS_MAX - 1))
    return (_PATTERN.pack(ledger_id, entry_id) * _PATTERNS_MAX)[:size]


def batch_of(ledger_id: int, first: int, count: int) -> BatchView:
    """Return a batch of the payloads of consecutive entries."""
    payloads = [payload_of(ledger_id, first + i) for i in range(count)]
    return make_batch(ledger_id, first, payloads, lac=first - 1)


async def open_storage(directory: Path, **changes: float) -> BookieStorage:
    """Open the storage of a real directory, with the production code."""
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]  # of the fields' types
    return await BookieStorage.open(RealDisk(directory), config, rng=Random(1))


async def audit(storage: BookieStorage, promises: Promises) -> Audit:
    """Request everything that was promised, and try to break fences; this changes the storage."""
    found = Audit()
    for ledger_id, known in promises.ledgers.items():
        if await _is_deleted(storage, ledger_id, known, found):
            continue
        at = 0
        while at < known.end:
            at = await _audit_from(storage, ledger_id, at, known, found)
        await _audit_state(storage, ledger_id, known, found)
    return found


async def _is_deleted(
    storage: BookieStorage, ledger_id: int, known: Promised, found: Audit
) -> bool:
    snapshot = await storage.reads.read_lac(LedgerId(ledger_id), KEY)
    is_deleted = snapshot.status is Status.DELETED
    if known.is_deleted and not is_deleted:
        found.forgotten.append(f"ledger {ledger_id} was deleted, and is {snapshot.status.name}")
    if is_deleted and not known.is_delete_tried:
        found.lost.append(f"ledger {ledger_id} is deleted, without a request")
    return is_deleted or known.is_deleted


async def _audit_from(
    storage: BookieStorage, ledger_id: int, at: int, known: Promised, found: Audit
) -> int:
    """Read from an entry on; return the first entry without an answer."""
    first, last = EntryId(at), EntryId(known.end - 1)
    result = await storage.reads.read(
        LedgerId(ledger_id), first, last, READ_BYTES, KEY, after_fence=False
    )
    try:
        held = _entries_of(result, at)
    except (BatchError, ValueError) as error:
        found.wrong.append(f"ledger {ledger_id} from {at}: bytes that are no batch: {error}")
        return at + 1
    for entry_id, payload in held.items():
        found.served += entry_id in known.added
        if entry_id >= known.end:
            found.wrong.append(f"ledger {ledger_id} has an entry {entry_id}, which no writer gave")
        elif payload != payload_of(ledger_id, entry_id):
            found.wrong.append(f"ledger {ledger_id} has other bytes at {entry_id}")
    at = max(held, default=at - 1) + 1
    if held or at >= known.end:
        return at
    if at in known.added:
        if result.status in NEGATIVES:
            found.lost.append(f"ledger {ledger_id} lost {at}: {result.status.name}")
        else:
            found.unknown += 1
    return at + 1


def _entries_of(result: ReadResult, at: int) -> dict[int, bytes]:
    """Return an answer's entries, without a gap from `at` on, each batch checked."""
    entries: dict[int, bytes] = {}
    for buffer in result.batches:
        batch = BatchView(buffer)
        batch.verify_crc()
        for place, payload in enumerate(batch.payload_views()):
            entry_id = batch.header.first_entry_id + place
            if entry_id >= at:
                entries[entry_id] = bytes(payload)
    if entries and list(entries) != list(range(at, at + len(entries))):
        raise ValueError(f"entries {list(entries)} were given for {at} and on")
    return entries


async def _audit_state(
    storage: BookieStorage, ledger_id: int, known: Promised, found: Audit
) -> None:
    snapshot = await storage.reads.read_lac(LedgerId(ledger_id), KEY)
    if snapshot.lac > known.lac_tried:
        found.wrong.append(f"ledger {ledger_id} has LAC {snapshot.lac}, which no writer sent")
    if snapshot.status is Status.OK and snapshot.lac < known.lac:
        found.forgotten.append(f"ledger {ledger_id}: LAC {known.lac} was kept as {snapshot.lac}")
    if known.is_fenced:
        status = await add(storage, batch_of(ledger_id, known.end, 1))
        if status is Status.OK:
            found.forgotten.append(f"ledger {ledger_id} was fenced, and takes an ordinary add")
