"""Answers are counted as a naive twin counts them, entry by entry; bytes, lag, replaced positions
and late answers one by one.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.protocol.acks import (
    BATCH_COST_BYTES,
    UnsettledBatch,
    UnsettledBatches,
    merge_adjacent,
)
from metadata.ids import EntryId
from metadata.ledgers.copies import write_set_positions
from metadata.ledgers.ledger_metadata import QuorumSpec

QUORUMS = st.sampled_from(
    [QuorumSpec(3, 3, 2, 4), QuorumSpec(3, 3, 3, 4), QuorumSpec(5, 3, 2, 2), QuorumSpec(4, 2, 1, 3)]
)


@dataclass
class NaiveTwin:
    """Keeps a set of positions per entry and recomputes everything from it."""

    quorum: QuorumSpec
    stored: dict[int, set[int]] = field(default_factory=dict)
    batches: list[tuple[int, int]] = field(default_factory=list)

    def lac(self) -> int:
        lac = -1
        for first, count in self.batches:
            for entry in range(first, first + count):
                if len(self.stored[entry]) < self.quorum.ack_quorum:
                    return lac
            lac = first + count - 1
        return lac


@given(st.data(), QUORUMS)
def test_the_lac_follows_from_the_answers(data: st.DataObject, quorum: QuorumSpec) -> None:
    pending, twin = UnsettledBatches(quorum), NaiveTwin(quorum)
    next_entry = 0
    confirmed_before = -1
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["add", "add", "store", "store", "store", "clear"]))
        if action == "add":
            room = quorum.stripe_entries - next_entry % quorum.stripe_entries
            count = data.draw(st.integers(1, room))
            batch = pending.add(EntryId(next_entry), count, count * 10)
            for position in write_set_positions(quorum, EntryId(next_entry)):
                pending.note_sent(batch, 1 << position)
            twin.batches.append((next_entry, count))
            twin.stored.update({entry: set() for entry in range(next_entry, next_entry + count)})
            next_entry += count
        elif action == "store" and twin.batches:
            first, count = data.draw(st.sampled_from(twin.batches))
            position = data.draw(st.integers(0, quorum.ensemble_size - 1))
            pending.record(EntryId(first), position)
            if position in write_set_positions(quorum, EntryId(first)):
                for entry in range(first, first + count):
                    twin.stored[entry].add(position)
        elif action == "clear":
            position = data.draw(st.integers(0, quorum.ensemble_size - 1))
            lac = pending.lac
            sources = [None if p == position else p for p in range(quorum.ensemble_size)]
            pending.reassign(sources, quorum)
            for entry, positions in twin.stored.items():
                if entry > lac:
                    positions.discard(position)
        pending.confirm()
        assert pending.lac == max(twin.lac(), confirmed_before)
        assert pending.lac >= confirmed_before
        confirmed_before = pending.lac
        assert pending.length == (pending.lac + 1) * 10


@given(st.data(), QUORUMS)
def test_exactly_the_entries_without_all_copies_settle_short(
    data: st.DataObject, quorum: QuorumSpec
) -> None:
    pending = UnsettledBatches(quorum)
    stored: dict[int, set[int]] = {}
    for first in range(data.draw(st.integers(1, 8))):
        batch = pending.add(EntryId(first), 1, 1)
        members = write_set_positions(quorum, EntryId(first))
        for position in members:
            pending.note_sent(batch, 1 << position)
        count = data.draw(st.integers(quorum.ack_quorum, quorum.write_quorum))
        stored[first] = set(members[:count])
        for position in members[:count]:
            assert pending.record(EntryId(first), position)
            assert not pending.record(EntryId(first), position)
    pending.confirm()
    _, short = pending.settle(given_up=-1)
    listed = [entry for first, last in short for entry in range(first, last + 1)]
    assert listed == [e for e, have in sorted(stored.items()) if len(have) < quorum.write_quorum]
    assert all(pending.unanswered_bytes(p) == 0 for p in range(quorum.ensemble_size))


def test_adjacent_ranges_merge() -> None:
    ranges = [(EntryId(0), EntryId(1)), (EntryId(2), EntryId(5)), (EntryId(7), EntryId(7))]
    assert merge_adjacent(ranges) == [(0, 5), (7, 7)]
    ranges = [(EntryId(0), EntryId(0)), (EntryId(2), EntryId(3)), (EntryId(4), EntryId(4))]
    assert merge_adjacent(ranges) == [(0, 0), (2, 4)]


# -- one by one, with three replicas of which two must answer --------------------------------------

THREE = QuorumSpec(3, 3, 2, 4)
COST = 10 + BATCH_COST_BYTES


def batches_sent(count: int, positions: int = 0b111) -> tuple[UnsettledBatches, list[int]]:
    """Return batches of two entries and ten bytes that were sent to the positions in a mask, and
    their first entry ids.
    """
    pending = UnsettledBatches(THREE)
    firsts = [2 * number for number in range(count)]
    for first in firsts:
        pending.note_sent(pending.add(EntryId(first), 2, 10), positions)
    return pending, firsts


def stored(pending: UnsettledBatches, first: int, *positions: int) -> None:
    for position in positions:
        assert pending.record(EntryId(first), position)


def unanswered(pending: UnsettledBatches) -> list[int]:
    """Return the number of unanswered batches at each position."""
    counts = [divmod(pending.unanswered_bytes(p), COST) for p in range(3)]
    assert all(rest == 0 for _, rest in counts)
    return [count for count, _ in counts]


def test_only_more_than_the_limit_is_backlogged() -> None:
    pending, _ = batches_sent(2)
    stored(pending, 0, 0)
    assert list(pending.backlogged(0b111, 2 * COST)) == []
    assert list(pending.backlogged(0b111, 2 * COST - 1)) == [1, 2]
    assert list(pending.backlogged(0b101, COST)) == [2]
    assert list(pending.backlogged(0b111, COST - 1)) == [0, 1, 2]


def test_an_answer_takes_only_the_bytes_that_were_sent() -> None:
    pending, _ = batches_sent(1, positions=0b110)
    assert unanswered(pending) == [0, 1, 1]
    stored(pending, 0, 0, 1)
    assert unanswered(pending) == [0, 0, 1]


def test_what_is_unconfirmed_is_listed_in_order() -> None:
    pending, _ = batches_sent(3)
    stored(pending, 0, 0, 1)
    pending.confirm()
    assert [batch.first_entry_id for batch in pending.unconfirmed] == [2, 4]


def test_a_position_lags_while_it_lacks_the_oldest_unconfirmed_batch() -> None:
    pending, _ = batches_sent(3)
    stored(pending, 2, 0)
    stored(pending, 0, 1)
    assert [pending.is_behind(p) for p in range(3)] == [True, False, True]
    assert [pending.lag_entries(p) for p in range(3)] == [4, 0, 6]
    for first in (0, 2, 4):
        for position in range(3):
            pending.record(EntryId(first), position)
    pending.confirm()
    assert not any(pending.is_behind(p) for p in range(3))


def test_nothing_settles_before_it_is_confirmed() -> None:
    pending, _ = batches_sent(1)
    stored(pending, 0, 0, 1, 2)
    assert pending.settle(0) == (None, [])
    pending.confirm()
    assert pending.settle(0) == (1, [])
    assert pending.settle(0) == (None, [])


def test_a_settled_batch_is_not_awaited_any_more() -> None:
    """Only what is settled stops counting as unanswered, and its late answer changes nothing."""
    pending, _ = batches_sent(2)
    stored(pending, 0, 0, 1)
    pending.confirm()
    assert pending.settle(0) == (None, [])
    assert pending.settle(0b100) == (1, [(0, 1)])
    assert unanswered(pending) == [1, 1, 1]
    assert not pending.record(EntryId(0), 2)
    assert unanswered(pending) == [1, 1, 1]


def test_bytes_and_answers_move_with_their_bookies() -> None:
    pending, _ = batches_sent(3)
    stored(pending, 0, 0)
    stored(pending, 2, 0, 1)
    assert unanswered(pending) == [1, 2, 3]
    pending.reassign([2, None, 0], THREE)
    assert unanswered(pending) == [3, 0, 1]
    assert not pending.record(EntryId(0), 2), "its bookie has answered at the old position"
    stored(pending, 0, 0)
    assert pending.confirm()
    assert pending.take_missing(0) == [(2, 0b010), (4, 0b010)]


def test_a_larger_ensemble_has_new_positions_without_bytes() -> None:
    pending, _ = batches_sent(1)
    pending.reassign([0, 1, 2, None], QuorumSpec(4, 3, 2, 4))
    assert [pending.unanswered_bytes(p) for p in range(4)] == [COST, COST, COST, 0]


def confirmed_without_the_last() -> UnsettledBatches:
    """Return a confirmed batch that position 2 has not answered, and an unconfirmed one."""
    pending, _ = batches_sent(2)
    stored(pending, 0, 0, 1)
    assert pending.confirm()
    return pending


def test_a_replaced_bookie_is_not_awaited_for_confirmed_batches() -> None:
    pending = confirmed_without_the_last()
    pending.reassign([0, 1, None], THREE)
    assert not pending.record(EntryId(0), 2), "the new bookie was not sent this batch"
    assert pending.settle(0) == (1, [(0, 1)])
    assert unanswered(pending) == [1, 1, 0]


def test_a_bookie_that_lost_batches_is_sent_the_unconfirmed_ones_again() -> None:
    pending = confirmed_without_the_last()
    stored(pending, 2, 0)
    pending.resume_position(2)
    pending.resume_position(0)
    assert unanswered(pending) == [0, 1, 0]
    assert not pending.record(EntryId(0), 2), "it lost what this late answer is about"
    assert pending.settle(0) == (1, [(0, 1)])
    assert pending.take_missing(0) == [(2, 0b100)]
    assert unanswered(pending) == [0, 1, 1]


def test_batches_of_a_stripe_have_its_write_set() -> None:
    quorum = QuorumSpec(4, 2, 1, 3)
    pending, batches = UnsettledBatches(quorum), list[UnsettledBatch]()
    for first in (0, 1, 3, 5, 6, 9, 12):
        pending.lap = EntryId(first - 1)
        batches.append(pending.add(EntryId(first), 1, 1))
    assert [batch.write_set for batch in batches] == [
        0b0011,
        0b0011,
        0b0110,
        0b0110,
        0b1100,
        0b1001,
        0b0011,
    ]
