"""Tests of a partition's state: accepted and refused batches, and replay."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import ControlKind, Producer, build_control_batch, read_header
from broker_layer.log.state import partition_state
from broker_layer.log.state.epoch_table import EpochTable
from broker_layer.log.state.partition_state import ActiveProducer, PartitionState
from broker_layer.log.state.producer_state import ACCEPT, BatchRefused, Duplicate
from broker_layer.log.state.state_entry import (
    EntryPlace,
    StateEntry,
    StateEntryError,
    is_state_entry,
)
from broker_layer.log.state.transaction_index import AbortedTransaction
from metadata.ids import EntryId, LedgerId
from metadata.topics.partition import EpochStart
from tests.support.broker_layer.written_log import LEDGER, NOW, WrittenLog, batch, replay

ABORT, COMMIT = ControlKind.ABORT, ControlKind.COMMIT


def image(state: PartitionState, entry_id: int = 10**6) -> StateEntry:
    """Return the state entry of a state."""
    return StateEntry.decode(state.to_state_entry(EntryId(entry_id)))


def test_offsets_are_consecutive() -> None:
    log = WrittenLog()
    assert [log.write(count=3), log.write(), log.write(Producer(5, 0, 0), count=2)] == [0, 3, 4]
    assert log.state.next_offset == 6


def test_admitted_unconfirmed_batch_is_duplicate() -> None:
    log = WrittenLog()
    log.write(count=4)
    log.write(Producer(5, 0, 0), count=3)
    again = read_header(batch(Producer(5, 0, 0), count=3))
    assert log.state.check(again) == Duplicate(4, 6, -1)


def test_duplicate_has_append_time() -> None:
    log = WrittenLog()
    data = batch(Producer(5, 0, 0), at_ms=123, uses_append_time=True)
    log.append(data)
    assert log.state.check(read_header(data)) == Duplicate(0, 0, 123)


def test_first_batch_with_sequence_is_refused_only_in_empty_log() -> None:
    log = WrittenLog()
    late = batch(Producer(5, 0, 9))
    assert log.refusal(late) is ErrorCode.NOT_ENOUGH_REPLICAS
    log.write()
    log.append(late)


def test_clients_must_not_write_control_batches() -> None:
    log = WrittenLog()
    assert log.refusal(build_control_batch(COMMIT, 5, 0, 3, NOW)) is ErrorCode.INVALID_RECORD


def test_transaction_needs_producer() -> None:
    log = WrittenLog()
    assert log.refusal(batch(is_transactional=True)) is ErrorCode.INVALID_RECORD


def test_non_transactional_batch_in_open_transaction_is_refused() -> None:
    log = WrittenLog()
    log.write_in_transaction(Producer(5, 0, 0))
    outside = batch(Producer(5, 0, 1))
    text = "producer 5 has an open transaction, and the batch is not transactional"
    refused = BatchRefused(ErrorCode.INVALID_TXN_STATE, text)
    assert log.state.check(read_header(outside)) == refused
    log.end(COMMIT, 5)
    log.append(outside)


def test_transaction_is_open_from_first_batch_to_marker() -> None:
    log = WrittenLog()
    assert not log.state.is_open(5, 0)
    log.write(Producer(5, 0, 0))
    assert not log.state.is_open(5, 0)
    log.write_in_transaction(Producer(5, 0, 1))
    assert log.state.is_open(5, 0)
    assert not log.state.is_open(5, 1)
    assert not log.state.is_open(6, 0)
    log.end(ABORT, 5)
    assert not log.state.is_open(5, 0)


def test_transaction_is_opened_only_with_a_confirmation() -> None:
    log = WrittenLog()
    first = batch(Producer(5, 0, 0), is_transactional=True)
    assert log.refusal(first, may_open=False) is ErrorCode.NOT_ENOUGH_REPLICAS
    log.append(first)
    second = batch(Producer(5, 0, 1), is_transactional=True)
    assert log.state.check(read_header(second)) == ACCEPT
    of_newer_epoch = batch(Producer(5, 1, 0), is_transactional=True)
    assert log.refusal(of_newer_epoch, may_open=False) is ErrorCode.NOT_ENOUGH_REPLICAS
    log.end(ABORT, 5)
    assert log.refusal(second, may_open=False) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_markers_of_old_coordinators_and_old_epochs_are_refused() -> None:
    log = WrittenLog()
    log.write_in_transaction(Producer(5, 2, 0))
    log.end(COMMIT, 5, epoch=2, coordinator_epoch=4)

    def marker(epoch: int, coordinator_epoch: int) -> ErrorCode:
        data = build_control_batch(COMMIT, 5, epoch, coordinator_epoch, NOW)
        return log.refusal(data, coordinator_epoch)

    assert marker(2, 3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marker(1, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    log.end(COMMIT, 5, epoch=2, coordinator_epoch=4)  # repeated, because its answer was lost
    log.end(ABORT, 5, epoch=3, coordinator_epoch=5)


def test_marker_of_newer_epoch_fences_and_resets_sequences() -> None:
    log = WrittenLog()
    log.write_in_transaction(Producer(5, 0, 0))
    log.end(ABORT, 5, epoch=1)
    zombie = batch(Producer(5, 0, 1), is_transactional=True)
    assert log.refusal(zombie) is ErrorCode.INVALID_PRODUCER_EPOCH
    late = batch(Producer(5, 1, 1), is_transactional=True)
    assert log.refusal(late) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.write_in_transaction(Producer(5, 1, 0))


def test_marker_of_same_epoch_keeps_sequences() -> None:
    log = WrittenLog()
    log.write_in_transaction(Producer(5, 0, 0), count=3)
    log.end(COMMIT, 5)
    again = read_header(batch(Producer(5, 0, 0), count=3, is_transactional=True))
    assert log.state.check(again) == Duplicate(0, 2, -1)
    log.write_in_transaction(Producer(5, 0, 3))


def test_committed_readers_wait_for_open_transactions_and_unconfirmed_markers() -> None:
    log = WrittenLog()
    log.write()
    log.write_in_transaction(Producer(5, 0, 0), count=2)
    log.write()
    assert log.state.last_stable_offset(4) == 1
    assert log.end(ABORT, 5) == 4
    assert log.state.last_stable_offset(4) == 1
    assert log.state.aborted_in(0, 4, 4) == []
    assert log.state.last_stable_offset(5) == 5
    assert log.state.aborted_in(0, 5, 5) == [AbortedTransaction(5, 1, 4, 5)]


def test_log_start_drops_aborted_transactions_and_epochs() -> None:
    log = WrittenLog()
    log.start_epoch(1)
    log.write_in_transaction(Producer(5, 0, 0))
    log.end(ABORT, 5)
    log.start_epoch(2)
    log.write_in_transaction(Producer(6, 0, 0), count=5)
    log.state.drop_below(4)
    assert log.state.aborted_in(0, 10, 10) == []
    assert log.state.epochs == EpochTable((EpochStart(2, 4),))
    assert log.state.is_open(6, 0)
    assert log.state.last_stable_offset(7) == 4  # not below the log's start


def test_idle_producers_without_transaction_expire() -> None:
    log = WrittenLog()
    log.write(Producer(5, 0, 0), count=2)
    log.write_in_transaction(Producer(6, 3, 0), count=2)
    assert log.state.expire_producers(NOW + 99, 100) == 0
    assert log.state.expire_producers(NOW + 100, 100) == 1
    assert log.state.active_producers() == [ActiveProducer(6, 3, 1, NOW, -1, 2)]
    log.end(COMMIT, 6, epoch=3, coordinator_epoch=8)
    assert log.state.active_producers() == [ActiveProducer(6, 3, 1, NOW, 8, -1)]


def test_state_entries_contain_all_points_of_all_ledgers() -> None:
    log = WrittenLog()
    for _ in range(3):
        log.write(size=300_000)
    log.write_state()
    log.write(size=300_000, at_ms=NOW + 5)
    log.write(size=300_000)
    log.roll(LedgerId(8))
    log.write()

    tail = StateEntry.decode(log.ledgers[LedgerId(8)][0])
    assert tail.previous == EntryPlace(LEDGER, EntryId(4))
    assert [point.entry_id for point in tail.points] == [5, 6]
    assert tail.max_timestamp_ms == NOW + 5
    middle = StateEntry.decode(log.ledgers[LEDGER][4])
    assert middle.previous == EntryPlace(LEDGER, EntryId(0))
    assert [point.entry_id for point in middle.points] == [1, 2, 3]
    first = StateEntry.decode(log.ledgers[LEDGER][0])
    assert first == StateEntry(0, epochs=EpochTable((EpochStart(0, 0),)))


def test_index_from_later_state_entry_accepts_earlier_points() -> None:
    log = WrittenLog()
    for _ in range(2):
        for _ in range(3):
            log.write(size=300_000)
        log.write_state()
    state = PartitionState.from_state_entry(log.entries[8], LEDGER, EntryId(8))
    assert state.index is not None
    assert log.state.index is not None
    assert (state.index.find(2), state.index.find(3)) == (0, 5)
    state.index.add_earlier(StateEntry.decode(log.entries[4]).points)
    assert state.index.points_after(EntryId(-1)) == log.state.index.points_after(EntryId(-1))
    assert state.index.max_timestamp_ms == NOW


def test_invalid_entry_is_not_replayed() -> None:
    log = WrittenLog()
    state = log.replayed(LEDGER, 0)
    with pytest.raises(TopicError, match="entry 1 of the log is damaged: a record batch ends"):
        state.replay(EntryId(1), b"short", NOW)
    damaged = bytearray(log.entries[0])
    damaged[-1] ^= 1
    with pytest.raises(StateEntryError):
        state.replay(EntryId(1), damaged, NOW)
    log.write()
    log.write()
    state.replay(EntryId(1), log.entries[2], NOW)
    for earlier in (log.entries[0], log.entries[1]):
        with pytest.raises(TopicError, match="its offset is 0, below 2") as caught:
            state.replay(EntryId(2), earlier, NOW)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.write()
    with pytest.raises(TopicError, match="not a record batch"):
        state.replay(EntryId(3), log.entries[3][:16] + b"\1" + log.entries[3][17:], NOW)


def test_batch_of_negative_length_is_not_replayed() -> None:
    log = WrittenLog()
    log.write()
    state = log.replayed(LEDGER, 0)
    damaged = bytearray(batch())
    damaged[7] = state.next_offset
    damaged[23:27] = (-1).to_bytes(4, "big", signed=True)
    with pytest.raises(TopicError, match="not a record batch"):
        state.replay(EntryId(2), damaged, NOW)


def test_replay_needs_only_batch_headers() -> None:
    log = WrittenLog()
    log.write(Producer(5, 0, 0), count=3, size=500_000)
    log.write(Producer(5, 0, 3))
    state = PartitionState.from_state_entry(log.entries[0], LEDGER, EntryId(0))
    replay(state, [data[:61] for data in log.entries[1:]], 1)
    assert image(state) == image(log.state)


def test_older_half_of_many_aborted_transactions_is_left_to_a_state_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_state, "ABORTED_MAX", 4)
    log = WrittenLog()
    markers: list[int] = []
    pages: list[StateEntry] = []
    for number in range(9):
        log.write_in_transaction(Producer(5, 0, number))
        markers.append(log.end(ABORT, 5))
        if log.state.wants_state_entry:
            log.write_state()
            pages.append(StateEntry.decode(log.entries[-1]))
    assert [len(page.aborted) for page in pages] == [4, 4, 4]
    assert pages[0].older is None
    older = log.state.older
    assert older is not None
    assert older.end_offset == markers[6]
    assert pages[2].older is not None
    assert pages[2].older.end_offset == markers[4]
    kept = image(log.state)
    assert [transaction.last_offset for transaction in kept.aborted] == markers[6:]
    for entry_id, data in enumerate(log.entries):
        if is_state_entry(data):
            replayed = image(log.replayed(LEDGER, entry_id))
            assert (replayed.aborted, replayed.older) == (kept.aborted, kept.older)
    log.state.drop_below(older.end_offset - 1)
    assert log.state.older == older
    log.state.drop_below(older.end_offset)
    assert log.state.older is None


def test_indexes_of_last_two_ledgers_are_known() -> None:
    log = WrittenLog()
    log.write()
    assert log.state.known_index(LedgerId(8)) is None
    log.write_state()
    former = log.state.index
    assert log.state.known_index(LEDGER) == (former, None)
    log.roll(LedgerId(8))
    newest = log.state.index
    assert log.state.known_index(LEDGER) == (former, None)
    assert log.state.known_index(LedgerId(8)) == (newest, None)
    log.write_state()
    assert log.state.known_index(LEDGER) == (former, None)
    log.roll(LedgerId(9))
    assert log.state.known_index(LEDGER) is None
    assert log.state.known_index(LedgerId(8)) == (newest, None)


def test_partial_index_names_state_entry_to_read_backwards_from() -> None:
    log = WrittenLog()
    for _ in range(3):
        log.write()
        log.write_state()
    state = log.replayed(LEDGER, 2)
    assert state.known_index(LEDGER) == (state.index, EntryPlace(LEDGER, EntryId(6)))
    former = state.index
    state.begin_ledger(LedgerId(8))
    assert state.known_index(LEDGER) == (former, EntryPlace(LEDGER, EntryId(6)))
    state.to_state_entry(EntryId(0))
    assert state.known_index(LEDGER) == (former, EntryPlace(LEDGER, EntryId(6)))
    assert state.known_index(LedgerId(8)) == (state.index, None)


def test_every_ledger_begins_with_state_entry() -> None:
    log = WrittenLog()
    log.state.begin_ledger(LedgerId(8))
    with pytest.raises(AssertionError):
        log.state.begin_ledger(LedgerId(9))


def test_replay_takes_epochs_from_batches() -> None:
    log = WrittenLog()
    log.write(count=2)
    log.start_epoch(1)
    log.start_epoch(3)
    log.write()
    starts = (EpochStart(0, 0), EpochStart(3, 2))
    assert log.replayed(LEDGER, 0).epochs == EpochTable(starts)


actions = st.one_of(
    st.tuples(st.just("write"), st.just(0)),
    st.tuples(st.just("produce"), st.integers(1, 4)),
    st.tuples(st.just("begin"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["abort", "commit", "bump"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(["state", "roll", "epoch"]), st.just(0)),
)


@given(st.lists(actions, max_size=40))
def test_replay_from_any_state_entry_equals_leader_state(
    steps: list[tuple[str, int]],
) -> None:
    log = _played(steps)
    expected = image(log.state)
    for ledger_id, entries in log.ledgers.items():
        for entry_id, data in enumerate(entries):
            if data[16] == 255:
                state = log.replayed(ledger_id, entry_id)
                # Leaderships without a batch or state entry are only in the list of ledgers.
                assert replace(image(state), epochs=expected.epochs) == expected


def _played(steps: list[tuple[str, int]]) -> WrittenLog:
    log = WrittenLog()
    sequences: dict[int, int] = dict.fromkeys(range(1, 5), 0)
    epochs: dict[int, int] = dict.fromkeys(range(1, 5), 0)
    for kind, producer in steps:
        match kind:
            case "write":
                log.write(count=2, size=100_000)
            case "produce" | "begin":
                is_open = log.state.is_open(producer, epochs[producer])
                who = Producer(producer, epochs[producer], sequences[producer])
                is_transactional = is_open or kind == "begin"
                log.append(batch(who, count=3, is_transactional=is_transactional))
                sequences[producer] += 3
            case "abort" | "commit":
                log.end(ABORT if kind == "abort" else COMMIT, producer, epoch=epochs[producer])
            case "bump":
                epochs[producer] += 1
                sequences[producer] = 0
                log.end(ABORT, producer, epoch=epochs[producer])
            case "state":
                log.write_state()
            case "roll":
                log.roll(LedgerId(log.ledger_id + 1))
            case _:
                log.start_epoch(log.state.epochs.latest_epoch + 1)
    return log


def test_replay_of_two_ledgers() -> None:
    log = WrittenLog()
    log.write(Producer(5, 0, 0))
    log.roll(LedgerId(8))
    log.write(Producer(5, 0, 1))
    state = PartitionState.from_state_entry(log.ledgers[LEDGER][0], LEDGER, EntryId(0))
    assert [header.base_sequence for header in replay(state, log.ledgers[LEDGER][1:], 1)] == [0]
    state.begin_ledger(LedgerId(8))
    assert [header.base_sequence for header in replay(state, log.ledgers[LedgerId(8)], 0)] == [1]
    assert image(state) == image(log.state)
