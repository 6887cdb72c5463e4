"""Tests of the format of state entries: round trips, and detection of damage."""

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state import state_entry
from broker_layer.log.state.epoch_table import EPOCHS_MAX, EpochTable
from broker_layer.log.state.offset_index import IndexPoint
from broker_layer.log.state.producer_state import PRODUCERS_MAX, ProducerState, RecentBatch
from broker_layer.log.state.state_entry import (
    EntryPlace,
    OlderAborted,
    StateEntry,
    StateEntryError,
    is_state_entry,
)
from broker_layer.log.state.transaction_index import ABORTED_MAX, AbortedTransaction
from ledger_client.config import ClientConfig
from metadata.ids import EntryId, LedgerId
from metadata.topics.partition import EpochStart
from tests.support.broker_layer.written_log import batch

LARGEST = 2**63 - 1
naturals = st.integers(0, LARGEST)
times = st.integers(-1, LARGEST)
entry_ids = st.integers(0, LARGEST - 1).map(EntryId)
recent = st.builds(
    RecentBatch,
    base_sequence=st.integers(0, 2**31 - 1),
    base_offset=naturals,
    last_offset_delta=st.integers(0, 2**31 - 1),
    append_time_ms=times,
)
producers = st.builds(
    ProducerState,
    producer_epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    run_length=st.integers(0, 2**30),
    recent=st.lists(recent, max_size=5).map(tuple),
    last_timestamp_ms=st.integers(-(2**63), LARGEST),
    last_used_ms=naturals,
)
epochs = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), naturals), max_size=5, unique_by=lambda each: each[0]
).map(
    lambda pairs: EpochTable(
        tuple(
            EpochStart(epoch, offset)
            for epoch, offset in zip(
                sorted(epoch for epoch, _ in pairs),
                sorted(offset for _, offset in pairs),
                strict=True,
            )
        )
    )
)


def _in_order(points: list[IndexPoint]) -> tuple[IndexPoint, ...]:
    entry_ids = sorted(point.entry_id for point in points)
    offsets = sorted(point.base_offset for point in points)
    times = (point.max_timestamp_before_ms for point in points)
    return tuple(map(IndexPoint, entry_ids, offsets, times))


entries = st.builds(
    StateEntry,
    next_offset=naturals,
    previous=st.none() | st.builds(EntryPlace, naturals.map(LedgerId), entry_ids),
    max_timestamp_ms=times,
    points=st.lists(
        st.builds(IndexPoint, entry_ids, naturals, times),
        max_size=5,
        unique_by=(lambda each: each.entry_id, lambda each: each.base_offset),
    ).map(_in_order),
    producers=st.lists(st.tuples(naturals, producers), max_size=4).map(tuple),
    open_transactions=st.lists(st.tuples(naturals, naturals), max_size=4).map(tuple),
    aborted=st.lists(
        st.builds(AbortedTransaction, naturals, naturals, naturals, naturals), max_size=4
    ).map(tuple),
    epochs=epochs,
    older=st.none()
    | st.builds(OlderAborted, st.builds(EntryPlace, naturals.map(LedgerId), entry_ids), naturals),
)

SAMPLE = StateEntry(
    next_offset=44,
    previous=EntryPlace(LedgerId(7), EntryId(3)),
    max_timestamp_ms=1_700_000_000_000,
    points=(IndexPoint(EntryId(4), 9, -1), IndexPoint(EntryId(9), 20, 5)),
    producers=((5, ProducerState(2, 1, 9, (RecentBatch(3, 40, 2, -1),), 77, 99)),),
    open_transactions=((5, 40),),
    aborted=(AbortedTransaction(6, 1, 4, 5),),
    epochs=EpochTable((EpochStart(0, 0), EpochStart(4, 9))),
)


def sealed(fields: object, version: int = 1) -> bytes:
    """Return a well-formed entry with the given fields."""
    body = bytes([255, version]) + msgpack.packb(fields)
    return b"quire state\0" + crc32c(body).to_bytes(4, "big") + body


@given(entries)
def test_round_trip(entry: StateEntry) -> None:
    data = entry.encode()
    assert is_state_entry(data)
    assert StateEntry.decode(memoryview(data)) == entry


def test_encoded_bytes_are_stable() -> None:
    assert SAMPLE.encode().hex() == (
        "71756972652073746174650072ac4f64ff01992c920703cf0000018bcfe56800960409ff09140591"
        "97050201094d6394032802ff92052894060104059400000409c0"
    )


def test_batch_is_not_state_entry() -> None:
    data = batch()
    data[:12] = b"quire state\0"
    assert not is_state_entry(data)
    assert not is_state_entry(b"")
    assert not is_state_entry(SAMPLE.encode()[:16])


def test_every_changed_bit_is_detected() -> None:
    data = SAMPLE.encode()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(StateEntryError):
                StateEntry.decode(damaged)


def test_entry_of_wrong_length_is_refused() -> None:
    data = SAMPLE.encode()
    for length in range(len(data)):
        with pytest.raises(StateEntryError):
            StateEntry.decode(data[:length])
    with pytest.raises(StateEntryError):
        StateEntry.decode(data + b"\0")


def test_newer_format_version_is_refused() -> None:
    with pytest.raises(StateEntryError, match="version 2") as caught:
        StateEntry.decode(sealed([], version=2))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


values: st.SearchStrategy[object] = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**64 - 1)
    | st.booleans()
    | st.floats()
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=7),
    max_leaves=12,
)


@given(st.lists(values, min_size=7, max_size=9))
def test_any_fields_decode_or_raise_error(fields: list[object]) -> None:
    try:
        entry = StateEntry.decode(sealed(fields))
    except StateEntryError:
        return
    assert StateEntry.decode(entry.encode()) == entry


@given(st.integers(0, 7), values)
def test_field_of_other_type_decodes_or_raises_error(place: int, value: object) -> None:
    fields = msgpack.unpackb(SAMPLE.encode()[18:])
    fields[place] = value
    try:
        entry = StateEntry.decode(sealed(fields))
    except StateEntryError:
        return
    assert StateEntry.decode(entry.encode()) == entry


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((0,), 2**63),
        ((0,), -1),
        ((1, 1), 2**63 - 1),
        ((2,), -2),
        ((3, 1), 2**63),
        ((4, 0, 1), 2**15),
        ((4, 0, 1), -1),
        ((4, 0, 2), 2**31),
        ((4, 0, 3), 2**30 + 1),
        ((4, 0, 4), 2**63),
        ((4, 0, 6, 0), 2**31),
        ((4, 0, 6, 2), 2**31),
        ((5, 0), -1),
        ((6, 2), 2**63),
        ((7, 0), 2**31),
        ((7, 3), -1),
    ],
)
def test_number_out_of_range_is_refused(path: tuple[int, ...], value: int) -> None:
    fields = msgpack.unpackb(SAMPLE.encode()[18:])
    inner = fields
    for position in path[:-1]:
        inner = inner[position]
    inner[path[-1]] = value
    with pytest.raises(StateEntryError):
        StateEntry.decode(sealed(fields))


def fields_of_sample() -> list[object]:
    fields: list[object] = msgpack.unpackb(SAMPLE.encode()[18:])
    return fields


@pytest.mark.parametrize("count", [0, 8, 10])
def test_wrong_number_of_fields_is_refused(count: int) -> None:
    fields = (*fields_of_sample(), 0)[:count]
    with pytest.raises(StateEntryError, match="not an array of 9 fields"):
        StateEntry.decode(sealed(fields))


@pytest.mark.parametrize("older", [0, [7, 3], [7, 3, -1], [7, -1, 9], [7, 3, 9, 0]])
def test_damaged_place_of_older_transactions_is_refused(older: object) -> None:
    with pytest.raises(StateEntryError):
        StateEntry.decode(sealed([*fields_of_sample()[:8], older]))


def test_entry_without_fields_is_refused() -> None:
    marked = bytes([255, 1])
    with pytest.raises(StateEntryError, match="not msgpack"):
        StateEntry.decode(b"quire state\0" + crc32c(marked).to_bytes(4, "big") + marked)


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (1, [7], "a place has 1 fields"),
        (1, [7, 3, 0], "a place has 3 fields"),
        (3, [4, 9, 0, 4, 10, 0], "points are not in order"),
        (3, [4, 9, 0, 5, 9, 0], "points are not in order"),
        (4, [[5, 2, 1, 9, 77, 99, [0] * 24]], "a producer has 6 recent batches, more than 5"),
        (7, [4, 9, 0, 10], "epochs are not in order"),
        (7, [0, 9, 4, 8], "epochs are not in order"),
    ],
)
def test_damaged_field_is_refused(place: int, value: object, text: str) -> None:
    fields = fields_of_sample()
    fields[place] = value
    with pytest.raises(StateEntryError, match=text):
        StateEntry.decode(sealed(fields))


def test_more_producers_than_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = SAMPLE.encode()
    monkeypatch.setattr(state_entry, "PRODUCERS_MAX", 1)
    assert StateEntry.decode(data) == SAMPLE
    monkeypatch.setattr(state_entry, "PRODUCERS_MAX", 0)
    with pytest.raises(StateEntryError, match="it has 1 producers, more than 0"):
        StateEntry.decode(data)


@given(st.binary(max_size=40))
def test_invalid_msgpack_raises_error(body: bytes) -> None:
    marked = bytes([255, 1]) + body
    data = b"quire state\0" + crc32c(marked).to_bytes(4, "big") + marked
    with pytest.raises(StateEntryError):
        StateEntry.decode(data)


def test_largest_state_fits_in_entry() -> None:
    batches = tuple(RecentBatch(2**31 - 1, LARGEST, 2**31 - 1, LARGEST) for _ in range(5))
    producer = ProducerState(2**15 - 1, 2**31 - 1, 2**30, batches, LARGEST, LARGEST)
    aborted = AbortedTransaction(LARGEST, LARGEST, LARGEST, LARGEST)
    numbers = range(LARGEST - 10_000, LARGEST)
    entry = StateEntry(
        next_offset=LARGEST,
        previous=EntryPlace(LedgerId(LARGEST), EntryId(LARGEST - 1)),
        points=tuple(IndexPoint(EntryId(number), number, LARGEST) for number in numbers),
        producers=tuple((LARGEST, producer) for _ in range(PRODUCERS_MAX)),
        open_transactions=((LARGEST, LARGEST),) * PRODUCERS_MAX,
        aborted=(aborted,) * ABORTED_MAX,
        older=OlderAborted(EntryPlace(LedgerId(LARGEST), EntryId(LARGEST - 1)), LARGEST),
        epochs=EpochTable(tuple(EpochStart(i, LARGEST) for i in range(EPOCHS_MAX))),
    )
    data = entry.encode()
    assert len(data) < ClientConfig().entry_bytes_max
    assert StateEntry.decode(data) == entry
