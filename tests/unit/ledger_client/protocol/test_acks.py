"""Answers are counted as a naive twin counts them, entry by entry."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.protocol.acks import UnsettledBatches, merge_adjacent
from ledger_client.protocol.quorum import write_set_positions
from metadata.ids import EntryId
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
