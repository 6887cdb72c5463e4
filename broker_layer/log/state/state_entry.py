"""Codec of state entries: a partition's state as an entry of its ledger.

Leaves keeping the state to `partition_state`, and the decision to write one to `log_appender` and
`ledger_roller`.

Entry 0 of every ledger is a state entry, and some later entries are too. They have no offsets, and
clients never get them. Each refers to the previous state entry. It contains the index points of
that one's ledger, from there up to itself or to the end of that ledger. So the index of any ledger
can be built by following the references backwards.

Format, big-endian:

| offset | size | field |
|---|---|---|
| 0 | 12 | "quire state" and a zero byte |
| 12 | 4 | CRC-32C of everything from offset 16 on |
| 16 | 1 | 255, where a record batch has its magic number, 2 |
| 17 | 1 | format version, 1 |
| 18 | | msgpack array |

The array contains integers, nil and arrays:

    0  next offset
    1  previous state entry: [ledger id, entry id] or nil
    2  the greatest time in the previous one's ledger up to here, ms; -1 for none
    3  points: [entry id, base offset, greatest time before, ...]
    4  producers, the longest idle first: [[id, epoch, coordinator epoch, run length,
       last timestamp ms, last used ms,
       [base sequence, base offset, last offset delta, append time ms, ...]]]
    5  open transactions, by first offset: [producer id, first offset, ...]
    6  aborted transactions, by marker: [producer id, first offset, last offset, last stable
       offset, ...]
    7  leader epochs: [epoch, start offset, ...]
    8  older aborted transactions: [ledger id, entry id, end offset], or nil

Aborted transactions with markers below that end offset are in that state entry, and in those that
it refers to in the same way. So a log may have any number of them.

Invariants: decoding an encoded entry gives an equal value; any other bytes raise StateEntryError;
no record batch is a valid state entry, and no state entry is a valid record batch.

Source: topics design, "State entries".
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Self

import msgpack
from crc32c import crc32c

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import NO_TIMESTAMP
from broker_layer.kafka.record_batch.header import SEQUENCE_MODULUS
from broker_layer.log.state.epoch_table import EpochTable
from broker_layer.log.state.offset_index import IndexPoint
from broker_layer.log.state.producer_state import (
    NO_COORDINATOR_EPOCH,
    PRODUCERS_MAX,
    RECENT_BATCHES_MAX,
    RUN_LENGTH_MAX,
    ProducerState,
    RecentBatch,
)
from broker_layer.log.state.transaction_index import ABORTED_MAX, AbortedTransaction
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, EntryId, LedgerId
from metadata.msgpack_fields import FieldError, Packed, array_of, int_of
from metadata.topics.partition import EpochStart

MAGIC: Final = b"quire state\0"
FORMAT_VERSION: Final = 1
_MARK: Final = 255
_MARK_AT: Final = 16
_HEADER: Final = struct.Struct(">12sIBB")
_FIELD_COUNT: Final = 9
_ITEMS_MAX: Final = 2 * 4 * ABORTED_MAX
"""Maximum number of items of an array: four of each aborted transaction. Some more than ABORTED_MAX
may be there before the entry that is due then is written.
"""
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_INT32_MAX: Final = 2**31 - 1
_INT16_MAX: Final = 2**15 - 1


class StateEntryError(TopicError):
    """A state entry of a log is damaged; the partition cannot be served."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"a state entry is damaged: {text}")


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """The place of an entry: its ledger and entry id."""

    ledger_id: LedgerId
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class OlderAborted:
    """Where the aborted transactions with markers below an offset are."""

    place: EntryPlace
    end_offset: int


@dataclass(frozen=True, slots=True)
class AbortedPage:
    """The aborted transactions that an entry names, and where older ones are."""

    aborted: tuple[AbortedTransaction, ...]
    older: OlderAborted | None

    @classmethod
    def of(cls, entry: "StateEntry", end_offset: int) -> Self:
        """Return those with markers below an offset, which no later entry names."""
        start = 0 if entry.older is None else entry.older.end_offset
        named = (abort for abort in entry.aborted if start <= abort.last_offset < end_offset)
        return cls(tuple(named), entry.older)


async def older_aborted(
    older: OlderAborted | None,
    first_offset: int,
    end_offset: int,
    page_of: Callable[[OlderAborted, int], Awaitable[AbortedPage]],
) -> list[AbortedTransaction]:
    """Return the older aborted transactions that may have records in a range of offsets, by their
    markers. `page_of` is given the end of the range too; it may leave out later transactions.
    Raises StateEntryError, and what `page_of` raises.
    """
    pages: list[list[AbortedTransaction]] = []
    while older is not None and first_offset < older.end_offset:
        page = await page_of(older, end_offset)
        pages.append(
            [
                transaction
                for transaction in page.aborted
                if transaction.first_offset < end_offset and transaction.last_offset >= first_offset
            ]
        )
        if page.older is not None and page.older.end_offset >= older.end_offset:
            raise StateEntryError(
                "a state entry names itself, or a later one, as the place of older transactions"
            )
        older = page.older
    return [transaction for page in reversed(pages) for transaction in page]


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A partition's state before the entries after this one."""

    next_offset: int
    previous: EntryPlace | None = None
    """The state entry before this one; None in the first of a log."""
    max_timestamp_ms: int = NO_TIMESTAMP
    """The greatest time in the ledger of `previous`, up to this entry or to that ledger's end."""
    points: tuple[IndexPoint, ...] = ()
    """Index points of the ledger of `previous`, after that entry."""
    producers: tuple[tuple[int, ProducerState], ...] = ()
    open_transactions: tuple[tuple[int, int], ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    epochs: EpochTable = field(default_factory=EpochTable)
    older: OlderAborted | None = None

    def encode(self) -> bytes:
        """Encode the entry."""
        place, older = self.previous, self.older
        fields: list[Packed] = [
            self.next_offset,
            None if place is None else [place.ledger_id, place.entry_id],
            self.max_timestamp_ms,
            _flat((p.entry_id, p.base_offset, p.max_timestamp_before_ms) for p in self.points),
            [_packed_producer(producer_id, state) for producer_id, state in self.producers],
            _flat(self.open_transactions),
            _flat(
                (a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset)
                for a in self.aborted
            ),
            _flat((start.epoch, start.start_offset) for start in self.epochs.starts),
            None
            if older is None
            else [older.place.ledger_id, older.place.entry_id, older.end_offset],
        ]
        body = bytes([_MARK, FORMAT_VERSION]) + msgpack.packb(fields)
        return MAGIC + crc32c(body).to_bytes(4, "big") + body

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Decode an entry. Raises StateEntryError for bytes that `encode` does not return."""
        fields = _unpacked(memoryview(data))
        try:
            return cls(
                next_offset=_offset(fields[0]),
                previous=_place_of(fields[1]),
                max_timestamp_ms=int_of(fields[2], NO_TIMESTAMP, _INT64_MAX),
                points=_points_of(fields[3]),
                producers=_producers_of(fields[4]),
                open_transactions=tuple(
                    (_offset(producer_id), _offset(first))
                    for producer_id, first in _rows(fields[5], 2)
                ),
                aborted=tuple(
                    AbortedTransaction(
                        _offset(row[0]), _offset(row[1]), _offset(row[2]), _offset(row[3])
                    )
                    for row in _rows(fields[6], 4)
                ),
                epochs=_epochs_of(fields[7]),
                older=_older_of(fields[8]),
            )
        except FieldError as error:
            raise StateEntryError(str(error)) from error


def is_state_entry(data: bytes | bytearray | memoryview) -> bool:
    """Return whether an entry of a partition's ledger is a state entry; otherwise it is a batch."""
    return len(data) > _MARK_AT and data[_MARK_AT] == _MARK and data[: len(MAGIC)] == MAGIC


def _unpacked(data: memoryview) -> list[Packed]:
    if not is_state_entry(data) or len(data) < _HEADER.size:
        raise StateEntryError("its first bytes are not those of a state entry")
    _, checksum, _, version = _HEADER.unpack_from(data)
    if crc32c(data[_MARK_AT:]) != checksum:
        raise StateEntryError("its CRC is wrong")
    if version != FORMAT_VERSION:
        raise StateEntryError(f"it has format version {version}: use a newer release")
    try:
        fields = msgpack.unpackb(data[_HEADER.size :], max_array_len=_ITEMS_MAX)
    except (ValueError, OverflowError, TypeError, msgpack.UnpackException) as error:
        raise StateEntryError(f"it is not msgpack ({error})") from error
    if not isinstance(fields, list) or len(fields) != _FIELD_COUNT:
        raise StateEntryError(f"it is not an array of {_FIELD_COUNT} fields")
    return fields


def _flat(rows: Iterable[tuple[int, ...]]) -> list[Packed]:
    return [field for row in rows for field in row]


def _rows(field: Packed, width: int) -> Iterator[tuple[Packed, ...]]:
    flat = array_of(field)
    if len(flat) % width:
        raise FieldError(f"{len(flat)} numbers are not a multiple of {width}")
    fields = iter(flat)
    return zip(*[fields] * width, strict=True)


def _offset(field: Packed) -> int:
    return int_of(field, 0, _INT64_MAX)


def _points_of(field: Packed) -> tuple[IndexPoint, ...]:
    points = tuple(
        IndexPoint(
            EntryId(int_of(entry_id, 0, ENTRY_ID_MAX)),
            _offset(offset),
            int_of(before, NO_TIMESTAMP, _INT64_MAX),
        )
        for entry_id, offset, before in _rows(field, 3)
    )
    for one, after in pairwise(points):
        if one.entry_id >= after.entry_id or one.base_offset >= after.base_offset:
            raise FieldError("points are not in order")
    return points


def _place_of(field: Packed) -> EntryPlace | None:
    if field is None:
        return None
    fields = array_of(field)
    if len(fields) != 2:  # noqa: PLR2004 - as the format says
        raise FieldError(f"a place has {len(fields)} fields instead of 2")
    ledger_id = LedgerId(int_of(fields[0], 0, LEDGER_ID_MAX))
    return EntryPlace(ledger_id, EntryId(int_of(fields[1], 0, ENTRY_ID_MAX)))


def _older_of(field: Packed) -> OlderAborted | None:
    if field is None:
        return None
    fields = array_of(field)
    if len(fields) != 3:  # noqa: PLR2004 - as the format says
        raise FieldError(f"the place of older transactions has {len(fields)} fields instead of 3")
    place = _place_of(fields[:2])
    assert place is not None, "it is not nil"
    return OlderAborted(place, _offset(fields[2]))


def _packed_producer(producer_id: int, state: ProducerState) -> list[Packed]:
    return [
        producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.run_length,
        state.last_timestamp_ms,
        state.last_used_ms,
        _flat(
            (b.base_sequence, b.base_offset, b.last_offset_delta, b.append_time_ms)
            for b in state.recent
        ),
    ]


def _producers_of(field: Packed) -> tuple[tuple[int, ProducerState], ...]:
    producers = array_of(field)
    if len(producers) > PRODUCERS_MAX:
        raise FieldError(f"it has {len(producers)} producers, more than {PRODUCERS_MAX}")
    return tuple(_producer_of(array_of(producer)) for producer in producers)


def _producer_of(fields: list[Packed]) -> tuple[int, ProducerState]:
    if len(fields) != 7:  # noqa: PLR2004 - as the format says
        raise FieldError(f"a producer has {len(fields)} fields instead of 7")
    recent = tuple(
        RecentBatch(
            base_sequence=int_of(row[0], 0, SEQUENCE_MODULUS - 1),
            base_offset=_offset(row[1]),
            last_offset_delta=int_of(row[2], 0, _INT32_MAX),
            append_time_ms=int_of(row[3], _INT64_MIN, _INT64_MAX),
        )
        for row in _rows(fields[6], 4)
    )
    if len(recent) > RECENT_BATCHES_MAX:
        text = f"a producer has {len(recent)} recent batches, more than {RECENT_BATCHES_MAX}"
        raise FieldError(text)
    return _offset(fields[0]), ProducerState(
        producer_epoch=int_of(fields[1], 0, _INT16_MAX),
        coordinator_epoch=int_of(fields[2], NO_COORDINATOR_EPOCH, _INT32_MAX),
        run_length=int_of(fields[3], 0, RUN_LENGTH_MAX),
        recent=recent,
        last_timestamp_ms=int_of(fields[4], _INT64_MIN, _INT64_MAX),
        last_used_ms=_offset(fields[5]),
    )


def _epochs_of(field: Packed) -> EpochTable:
    starts = tuple(
        EpochStart(int_of(epoch, 0, _INT32_MAX), _offset(start)) for epoch, start in _rows(field, 2)
    )
    table = EpochTable(starts)
    if not table.is_ordered:
        raise FieldError("epochs are not in order")
    return table
