"""Tests of producers' sequence checks, compared with a naive implementation without limits."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer, RecordBatchHeader, read_header
from broker_layer.log.state import producer_state
from broker_layer.log.state.producer_state import (
    PRODUCER_KEPT_MS,
    RECENT_BATCHES_MAX,
    RUN_LENGTH_MAX,
    Accept,
    BatchRefused,
    BatchVerdict,
    Duplicate,
    ProducerStates,
)
from tests.support.broker_layer.written_log import NOW, batch

MODULUS = 2**31
LAST = MODULUS - 1


def header(
    sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 5
) -> RecordBatchHeader:
    made = read_header(batch(Producer(producer_id, epoch, sequence)))
    return made._replace(last_offset_delta=count - 1, record_count=count)


def states(in_transaction: dict[int, int] | None = None) -> ProducerStates:
    return ProducerStates({} if in_transaction is None else in_transaction)


def code(verdict: BatchVerdict) -> ErrorCode:
    assert isinstance(verdict, BatchRefused), verdict
    return verdict.code


def after(*headers: RecordBatchHeader) -> ProducerStates:
    """Return the states after batches that were appended at offsets 100, 200, ..."""
    made = states()
    for position, batch_header in enumerate(headers, 1):
        assert made.check(batch_header, is_log_empty=False) == Accept()
        made.apply(batch_header, 100 * position, NOW)
    return made


def test_sequence_zero_follows_largest() -> None:
    made = after(header(LAST - 1, 2), header(0, 3))
    assert made.check(header(LAST - 1, 2), is_log_empty=False) == Duplicate(100, 101, -1)
    assert made.check(header(3), is_log_empty=False) == Accept()
    assert code(made.check(header(4), is_log_empty=False)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_may_span_largest_sequence() -> None:
    made = after(header(LAST - 1, 5))
    assert made.check(header(3), is_log_empty=False) == Accept()
    assert made.check(header(LAST - 1, 5), is_log_empty=False) == Duplicate(100, 104, -1)


def test_duplicate_has_same_first_and_last_sequence() -> None:
    made = after(header(0, 4), header(4, 4))
    for other in (header(0, 3), header(1, 3), header(2, 4), header(0, 8), header(4, 5)):
        verdict = made.check(other, is_log_empty=False)
        assert code(verdict) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_older_than_five_batches_is_duplicate_without_offsets() -> None:
    made = after(*(header(i) for i in range(7)))
    for sequence in range(7):
        verdict = made.check(header(sequence), is_log_empty=False)
        if sequence < 7 - RECENT_BATCHES_MAX:
            assert code(verdict) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        else:
            assert verdict == Duplicate(100 + 100 * sequence, 100 + 100 * sequence, -1)


def test_sequence_before_first_batch_is_out_of_order() -> None:
    made = after(*(header(i) for i in range(500, 507)))
    verdict = made.check(header(499), is_log_empty=False)
    assert code(verdict) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    verdict = made.check(header(500), is_log_empty=False)
    assert code(verdict) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_new_epoch_begins_at_zero_and_ends_old_one() -> None:
    made = after(header(0, 9))
    verdict = made.check(header(9, epoch=1), is_log_empty=False)
    assert code(verdict) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert made.check(header(0, 9, epoch=1), is_log_empty=False) == Accept()
    made.apply(header(0, 9, epoch=1), 200, NOW)
    verdict = made.check(header(0, 9), is_log_empty=False)
    assert code(verdict) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert made.check(header(0, 9, epoch=1), is_log_empty=False) == Duplicate(200, 208, -1)


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_producer_needs_epoch_and_sequence(epoch: int, sequence: int) -> None:
    verdict = states().check(header(sequence, epoch=epoch), is_log_empty=True)
    assert code(verdict) is ErrorCode.INVALID_RECORD


def test_run_length_is_limited_to_half_of_sequences() -> None:
    made = states()
    size = 2**29
    for i in range(5):
        sequence = i * size % MODULUS
        assert made.check(header(sequence, size), is_log_empty=False) == Accept()
        made.apply(header(sequence, size), i * size, NOW)
    ((_, state),) = made.snapshot()
    assert state.run_length == RUN_LENGTH_MAX
    verdict = made.check(header(size + RUN_LENGTH_MAX), is_log_empty=False)
    assert code(verdict) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_limit_drops_longest_idle_without_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 3)
    opened = {1: 0}
    made = states(opened)
    for producer_id in (1, 2, 3):
        made.apply(header(0, producer_id=producer_id), producer_id, NOW)
    made.apply(header(1, producer_id=2), 4, NOW)
    made.apply(header(0, producer_id=4), 5, NOW)
    assert [producer_id for producer_id, _ in made.snapshot()] == [2, 1, 4]

    opened |= {2: 1, 4: 5}
    verdict = made.check(header(0, producer_id=6), is_log_empty=False)
    assert code(verdict) is ErrorCode.POLICY_VIOLATION
    assert made.check(header(2, producer_id=2), is_log_empty=False) == Accept()
    # A marker is accepted at the limit too, but no producer is dropped to keep state for it.
    assert made.check_marker(6, 0, 3) == Accept()
    made.apply_marker(header(-1, producer_id=6), 3, NOW)
    assert sorted(producer_id for producer_id, _ in made.snapshot()) == [1, 2, 4]


def test_refused_sequence_names_expected_one() -> None:
    late = header(3)
    refusals = [after(header(0)).check(late._replace(producer_epoch=1), is_log_empty=False)]
    refusals += [after(header(0)).check(late, is_log_empty=False)]
    texts = [refusal.text for refusal in refusals if isinstance(refusal, BatchRefused)]
    assert texts == [
        "producer 5 in epoch 1 sent sequence 3; expected 0",
        "producer 5 in epoch 0 sent sequence 3; expected 1",
    ]


def test_refusal_at_limit_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 1)
    made = states({1: 0})
    made.apply(header(0, producer_id=1), 0, NOW)
    text = (
        "the partition has 1 producers, its limit, and all have open transactions or wrote in the "
        "last 600 s: use fewer producers, for longer"
    )
    verdict = made.check(header(0), is_log_empty=False, now_ms=NOW + PRODUCER_KEPT_MS)
    assert verdict == BatchRefused(ErrorCode.POLICY_VIOLATION, text)


def test_producer_that_may_repeat_a_batch_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 1)
    made = after(header(0))
    other, soon = header(0, producer_id=6), NOW + PRODUCER_KEPT_MS - 1
    assert code(made.check(other, is_log_empty=False, now_ms=soon)) is ErrorCode.POLICY_VIOLATION
    made.apply_marker(header(-1, producer_id=6), 3, soon)
    assert made.check(header(0), is_log_empty=False, now_ms=soon) == Duplicate(100, 100, -1)
    assert made.check(other, is_log_empty=False, now_ms=soon + 1) == Accept()
    made.apply(other, 200, soon + 1)
    assert [producer_id for producer_id, _ in made.snapshot()] == [6]


AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS


def test_no_batch_overtakes_first_one_that_is_sent_again() -> None:
    made = states()
    made.await_refused(header(4), NOW)
    made.await_refused(header(3), NOW)
    made.await_refused(header(5), NOW)
    later = made.check(header(4), is_log_empty=False, now_ms=NOW)
    text = "producer 5 in epoch 0 sent sequence 4 before 3, which is to be repeated: retry"
    assert later == BatchRefused(AGAIN, text)
    assert made.check(header(0, epoch=1), is_log_empty=False, now_ms=NOW) == Accept()
    assert made.check(header(3), is_log_empty=False, now_ms=NOW) == Accept()
    made.apply(header(3), 100, NOW)
    assert made.check(header(4), is_log_empty=False, now_ms=NOW) == Accept()


def test_gap_of_a_known_producer_behind_a_refused_batch_is_refused_for_now() -> None:
    made = after(header(0))
    made.await_refused(header(1), NOW)
    assert code(made.check(header(2), is_log_empty=False, now_ms=NOW)) is AGAIN
    assert made.check(header(0), is_log_empty=False, now_ms=NOW) == Duplicate(100, 100, -1)
    assert made.check(header(1), is_log_empty=False, now_ms=NOW) == Accept()
    made.apply(header(1), 200, NOW)
    verdict = made.check(header(3), is_log_empty=False, now_ms=NOW)
    assert code(verdict) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_of_a_new_epoch_behind_a_refused_batch_is_refused_for_now() -> None:
    made = after(header(0))
    made.await_refused(header(0, epoch=1), NOW)
    made.await_refused(header(1), NOW)  # a late batch of the older epoch
    verdict = made.check(header(1, epoch=1), is_log_empty=False, now_ms=NOW)
    assert code(verdict) is AGAIN
    assert made.check(header(0, epoch=1), is_log_empty=False, now_ms=NOW) == Accept()


def test_producer_of_an_earlier_topic_begins_anywhere_in_an_empty_log() -> None:
    made = states()
    first = made.check(header(8), is_log_empty=True, now_ms=NOW)
    text = "producer 5 begins with sequence 8 in an empty log: repeat the batch, after earlier ones"
    assert first == BatchRefused(AGAIN, text)
    made.await_refused(header(8), NOW)
    assert code(made.check(header(9), is_log_empty=True, now_ms=NOW)) is AGAIN
    assert made.check(header(8), is_log_empty=True, now_ms=NOW) == Accept()


def test_batch_that_another_broker_refused_comes_before_the_one_behind_it() -> None:
    made = states()
    assert code(made.check(header(1), is_log_empty=True, now_ms=NOW)) is AGAIN
    made.await_refused(header(1), NOW)
    assert made.check(header(0), is_log_empty=True, now_ms=NOW) == Accept()
    made.apply(header(0), 0, NOW)
    assert made.check(header(1), is_log_empty=False, now_ms=NOW) == Accept()


def test_refused_sequence_is_awaited_around_the_largest_one() -> None:
    made = states()
    made.await_refused(header(LAST), NOW)
    assert code(made.check(header(0), is_log_empty=False, now_ms=NOW)) is AGAIN


def test_refused_sequence_is_awaited_for_a_time() -> None:
    known, unknown = after(header(0)), states()
    over_ms = NOW + PRODUCER_KEPT_MS
    for made in (known, unknown):
        made.await_refused(header(1), NOW)
        for soon_ms in (NOW + 1, over_ms - 1):  # repeating a later batch does not prolong the wait
            assert code(made.check(header(2), is_log_empty=False, now_ms=soon_ms)) is AGAIN
            made.await_refused(header(2), soon_ms)
    verdict = known.check(header(2), is_log_empty=False, now_ms=over_ms)
    assert code(verdict) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert unknown.check(header(2), is_log_empty=False, now_ms=over_ms) == Accept()


def test_late_batch_of_an_older_epoch_does_not_end_the_wait() -> None:
    made = states()
    made.await_refused(header(0, epoch=1), NOW)
    made.await_refused(header(7, epoch=0), NOW)
    assert code(made.check(header(1, epoch=1), is_log_empty=False, now_ms=NOW)) is AGAIN


def test_sequences_of_a_limited_number_of_producers_are_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "AWAITED_MAX", 1)
    made = states()
    for producer_id in (5, 6):
        made.await_refused(header(0, producer_id=producer_id), NOW)
    assert made.check(header(1), is_log_empty=False, now_ms=NOW) == Accept()
    assert code(made.check(header(1, producer_id=6), is_log_empty=False, now_ms=NOW)) is AGAIN


def test_new_epoch_after_largest_sequence_begins_new_run() -> None:
    made = after(header(LAST, epoch=0), header(0, epoch=1))
    ((_, state),) = made.snapshot()
    assert (state.run_length, [recent_batch.base_offset for recent_batch in state.recent]) == (
        1,
        [200],
    )
    assert made.check(header(1, epoch=1), is_log_empty=False) == Accept()


def test_replayed_gap_begins_new_run() -> None:
    # The leader had dropped the producer before it accepted this sequence; a replay still has it.
    made = after(header(0))
    made.apply(header(7), 200, NOW)
    assert made.check(header(7), is_log_empty=False) == Duplicate(200, 200, -1)
    assert made.check(header(8), is_log_empty=False) == Accept()
    assert code(made.check(header(0), is_log_empty=False)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_keeps_coordinator_epoch_of_marker() -> None:
    made = after(header(0))
    made.apply_marker(header(-1), 3, NOW)
    made.apply(header(1), 200, NOW)
    assert code(made.check_marker(5, 0, 2)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert made.check_marker(5, 0, 3) == Accept()


def test_unknown_producer_has_no_epoch() -> None:
    assert [after(header(0, epoch=4)).epoch_of(producer_id) for producer_id in (5, 6)] == [4, None]


@dataclass
class Twin:
    """All sequences that one producer wrote in its epoch, in order."""

    epoch: int | None = None
    sequences: list[int] = field(default_factory=list)
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first, count, offset

    def check(self, first: int, count: int, epoch: int) -> str:
        if self.epoch is None:
            return "accept"
        if epoch < self.epoch:
            return "stale"
        if epoch > self.epoch:
            return "accept" if first == 0 else "gap"
        if first == (self.sequences[-1] + 1) % MODULUS if self.sequences else first == 0:
            return "accept"
        for known in self.batches[-RECENT_BATCHES_MAX:]:
            if known[:2] == (first, count):
                return f"duplicate {known[2]}"
        recent = sum(count for _, count, _ in self.batches[-RECENT_BATCHES_MAX:])
        older = self.sequences[: len(self.sequences) - recent]
        wanted = [(first + i) % MODULUS for i in range(count)]
        is_old = any(older[i : i + count] == wanted for i in range(len(older)))
        return "old" if is_old else "gap"

    def append(self, first: int, count: int, epoch: int, offset: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.sequences, self.batches = epoch, [], []
        self.sequences += [(first + i) % MODULUS for i in range(count)]
        self.batches.append((first, count, offset))

    def mark(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.sequences, self.batches = epoch, [], []


NAMES = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "stale",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "gap",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "old",
}

steps = st.tuples(
    st.sampled_from(["next", "next", "next", "again", "near", "zero", "marker"]),
    st.integers(1, 4),
    st.sampled_from([0, 0, 0, 0, 1, -1]),
    st.integers(0, 12),
)


@given(st.sampled_from([0, 7, LAST - 5, LAST]), st.lists(steps, max_size=40))
def test_sequence_checks_match_naive_twin(
    start: int, moves: list[tuple[str, int, int, int]]
) -> None:
    made, twin = states(), Twin()
    following, offset = start, 0
    for kind, drawn_count, epoch_change, back in moves:
        count = drawn_count
        epoch = max(0, (twin.epoch or 0) + epoch_change)
        if kind == "marker":
            epoch = max(epoch, twin.epoch or 0)
            made.apply_marker(header(-1, epoch=epoch), 0, NOW)
            following = following if epoch == twin.epoch else 0
            twin.mark(epoch)
            continue
        first = {"next": following, "zero": 0}.get(kind, (following - back) % MODULUS)
        if kind == "again" and twin.batches:
            first, count, _ = twin.batches[-1 - back % len(twin.batches)]
        given_header = header(first, count, epoch)
        verdict = made.check(given_header, is_log_empty=False)
        expected = twin.check(first, count, epoch)
        match verdict:
            case Accept():
                assert expected == "accept"
                made.apply(given_header, offset, NOW)
                twin.append(first, count, epoch, offset)
                following = (first + count) % MODULUS
                offset += count
            case Duplicate(base_offset, last_offset, _):
                assert expected == f"duplicate {base_offset}"
                assert last_offset == base_offset + count - 1
            case BatchRefused(refusal):
                assert NAMES[refusal] == expected
