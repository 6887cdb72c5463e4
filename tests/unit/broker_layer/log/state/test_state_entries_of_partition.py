"""Tests of a partition's state entries: when one is due, and what a replay takes from one."""

import pytest

from broker_layer.kafka.record_batch import ControlKind, Producer, read_header
from broker_layer.log.state import partition_state
from broker_layer.log.state.epoch_table import EpochTable
from broker_layer.log.state.partition_state import (
    STATE_ENTRY_BATCHES_MAX,
    STATE_ENTRY_BYTES_MAX,
    STATE_ENTRY_SHARE,
    PartitionState,
)
from broker_layer.log.state.state_entry import StateEntry
from metadata.ids import EntryId
from metadata.topics.partition import EpochStart
from tests.support.broker_layer.written_log import LEDGER, NOW, WrittenLog, batch


def test_state_entry_is_due_after_many_bytes_or_batches() -> None:
    log = WrittenLog()
    log.write()
    assert not log.state.wants_state_entry
    header = read_header(batch())
    large = header._replace(size_bytes=STATE_ENTRY_BYTES_MAX)
    log.state.admit(EntryId(2), 1, large, None, NOW)
    assert log.state.wants_state_entry
    log.state.to_state_entry(EntryId(3))
    assert not log.state.wants_state_entry
    for i in range(STATE_ENTRY_BATCHES_MAX):
        assert not log.state.wants_state_entry
        log.state.admit(EntryId(4 + i), 2 + i, header, None, NOW)
    assert log.state.wants_state_entry


def test_large_state_is_not_rewritten_for_few_small_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_state, "STATE_ENTRY_BATCHES_MAX", 3)
    log = WrittenLog()
    for producer_id in range(50):
        log.write(Producer(producer_id, 0, 0))
    log.write_state()
    wanted = -(-len(log.entries[-1]) * STATE_ENTRY_SHARE // len(batch()))
    assert wanted > 3
    for _ in range(wanted):
        assert not log.state.wants_state_entry
        log.write()
    assert log.state.wants_state_entry


def test_state_entry_is_due_from_exact_size_on(monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(batch())

    def dues(size_bytes: int) -> list[bool]:
        """Return whether an entry is due after one byte less, and after all bytes."""
        log, due = WrittenLog(), list[bool]()
        for position, size in enumerate((size_bytes - 1, 1)):
            sized = header._replace(size_bytes=size)
            log.state.admit(EntryId(1 + position), position, sized, None, NOW)
            due.append(log.state.wants_state_entry)
        return due

    assert dues(STATE_ENTRY_BYTES_MAX) == [False, True]
    worth_it = STATE_ENTRY_SHARE * len(WrittenLog().entries[0])
    assert dues(worth_it) == [False, False]
    monkeypatch.setattr(partition_state, "STATE_ENTRY_BATCHES_MAX", 1)
    assert dues(worth_it) == [False, True]


def test_replayed_state_entry_sets_next_offset_and_epochs() -> None:
    log = WrittenLog()
    state = log.replayed(LEDGER, 0)
    epochs = EpochTable((EpochStart(0, 0), EpochStart(3, 4)))
    state.replay(EntryId(1), StateEntry(9, epochs=epochs).encode(), NOW)
    assert (state.next_offset, state.epochs) == (9, epochs)


def test_replayed_state_entry_is_cut_at_log_start() -> None:
    log = WrittenLog()
    for producer_id in (5, 6):
        log.start_epoch(producer_id)
        log.write_in_transaction(Producer(producer_id, 0, 0))
        log.end(ControlKind.ABORT, producer_id)
    log.write_state()
    state = PartitionState.from_state_entry(log.entries[0], LEDGER, EntryId(0))
    state.drop_below(3)
    state.replay(EntryId(1), log.entries[-1], NOW)
    assert state.epochs == EpochTable((EpochStart(6, 3),))
    assert [transaction.producer_id for transaction in state.aborted_in(0, 4, 4)] == [6]
