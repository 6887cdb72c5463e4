"""Tests of how a recovery reads on behind answers and chunks that are complete."""

from bookie.wire.messages import Status
from ledger_client.protocol.recovery_events import FoundRun, RangeAnswered, ReadRange
from ledger_client.protocol.recovery_read import CHUNK_ENTRIES, Ended, ReadPhase
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec

BOOKIES = (BookieId("a"), BookieId("b"))


def reading() -> ReadPhase:
    """Return the reads of a ledger whose entries are all on both bookies."""
    return ReadPhase(QuorumSpec(2, 2, 2, 1024), Fragment(EntryId(0), BOOKIES), EntryId(0))


def answer(asked: ReadRange, count: int, status: Status = Status.OK) -> RangeAnswered:
    first = asked.first_entry_id
    run = (FoundRun(first, (1,) * count, 0),) if count else ()
    return RangeAnswered(asked.bookie_id, first, run, EntryId(first + count), status)


def test_a_complete_chunk_is_not_the_end() -> None:
    phase = reading()
    first, _ = phase.requests()
    assert first.last_entry_id == CHUNK_ENTRIES - 1
    assert phase.answered(answer(first, CHUNK_ENTRIES)) == []
    (stretch,) = phase.take()
    assert len(stretch.lengths) == CHUNK_ENTRIES
    assert phase.verdict() is None
    assert {request.first_entry_id for request in phase.requests()} == {
        CHUNK_ENTRIES,
        2 * CHUNK_ENTRIES,
    }


def test_an_answer_that_ends_early_says_nothing_of_the_next_entry() -> None:
    phase = reading()
    asked = phase.requests()
    again = [read_range for one in asked for read_range in phase.answered(answer(one, 3))]
    assert phase.verdict() is None
    assert [read_range.first_entry_id for read_range in again] == [3, 3]
    for read_range in again:
        phase.answered(answer(read_range, 0, Status.NO_SUCH_ENTRY))
    assert phase.verdict() == Ended(EntryId(3))


def test_an_entry_behind_the_requested_ones_says_nothing_of_the_length() -> None:
    """A bookie returns the chunk as a slice, and the batch after it."""
    start = EntryId(1)
    phase = ReadPhase(QuorumSpec(2, 2, 2, 1024), Fragment(EntryId(0), BOOKIES), start)
    asked, _ = phase.requests()
    size = asked.last_entry_id - start + 1
    behind = EntryId(asked.last_entry_id + 1)
    runs = (FoundRun(start, (1,) * size, None), FoundRun(behind, (1,), 1 + size))
    phase.answered(RangeAnswered(asked.bookie_id, start, runs, behind, Status.OK))
    assert phase.length_before_start() is None
    (stretch,) = phase.take()
    assert stretch.lengths == (1,) * size
