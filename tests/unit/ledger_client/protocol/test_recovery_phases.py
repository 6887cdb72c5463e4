"""Fences of one fragment, and the entries that are read forward in it (rules 7.2-7.4, 11.5)."""

import pytest

from bookie.wire.messages import Status
from ledger_client.protocol.recovery import FencePhase
from ledger_client.protocol.recovery_events import (
    FenceAnswered,
    FenceFailed,
    FoundRun,
    RangeAnswered,
    RangeFailed,
    ReadRange,
    Undecided,
)
from ledger_client.protocol.recovery_read import (
    CHUNK_ENTRIES,
    CHUNKS_OPEN_MAX,
    Ended,
    ReadPhase,
    Stretch,
)
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, QuorumMode, QuorumSpec

NAMES = tuple(map(BookieId, "abcd"))
A, B, C, D = NAMES
STRIPES_OF_FOUR = QuorumSpec(4, 3, 2, 4)
EVERYWHERE = QuorumSpec(3, 3, 2, 1)


# -- fences ----------------------------------------------------------------------------------------


def fences(quorum: QuorumSpec = EVERYWHERE) -> FencePhase:
    phase = FencePhase(quorum, Fragment(EntryId(5), NAMES[: quorum.ensemble_size]))
    assert [request.bookie_id for request in phase.requests()] == list(
        NAMES[: quorum.ensemble_size]
    )
    return phase


def fenced(bookie_id: BookieId, lac: int = 4, status: Status = Status.OK) -> FenceAnswered:
    return FenceAnswered(bookie_id, status, EntryId(lac), fenced=True)


def test_fences_are_sufficient_once_no_ack_quorum_can_form() -> None:
    phase = fences()
    assert phase.start_entry_id == 5
    phase.answered(fenced(A, 9))
    phase.answered(fenced(A, 99))
    assert not phase.is_covered, "the same bookie again"
    assert phase.start_entry_id == 10
    phase.failed(FenceFailed(A, "late"))
    phase.answered(fenced(C, 7, Status.NO_SUCH_LEDGER))
    assert phase.is_covered
    assert phase.start_entry_id == 10
    assert phase.verdict() is None
    assert phase.fenced_fragment == Fragment(EntryId(5), (A, C))
    phase.failed(FenceFailed(B, "away"))
    assert phase.verdict() is None, "all have answered or failed, and it is covered"


def test_too_few_fences_are_a_failure_once_all_have_answered() -> None:
    phase = fences()
    phase.answered(fenced(A))
    phase.failed(FenceFailed(B, "away"))
    assert phase.verdict() is None
    phase.answered(FenceAnswered(C, Status.OK, EntryId(4), fenced=False))
    verdict = phase.verdict()
    assert isinstance(verdict, Undecided)
    assert verdict.missing == {B: "away", C: "did not fence"}
    assert "2 of every 3 neighbours" in verdict.needed


def test_in_sync_every_member_is_waited_for_and_one_is_sufficient() -> None:
    phase = fences(QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 2))
    phase.answered(fenced(B))
    assert phase.is_sufficient
    assert not phase.is_covered
    phase.failed(FenceFailed(A, "away"))
    phase.answered(fenced(C, status=Status.UNKNOWN))
    assert phase.is_covered
    assert phase.fenced_fragment.ensemble == (B,)


# -- reading forward -------------------------------------------------------------------------------


class Reading:
    """A read phase, and answers to it in few words."""

    def __init__(self, start: int, quorum: QuorumSpec = STRIPES_OF_FOUR) -> None:
        fragment = Fragment(EntryId(0), NAMES[: quorum.ensemble_size])
        self.phase = ReadPhase(quorum, fragment, EntryId(start))
        self.first_requests = self.phase.requests()

    def found(
        self, bookie_id: BookieId, asked_from: int, *runs: FoundRun, status: Status = Status.OK
    ) -> list[ReadRange]:
        following = runs[-1].next_entry_id if runs else EntryId(asked_from)
        return self.phase.answered(
            RangeAnswered(bookie_id, EntryId(asked_from), runs, following, status)
        )


def run(first: int, *lengths: int, before: int | None = None) -> FoundRun:
    return FoundRun(EntryId(first), lengths, before)


def read(bookie_id: BookieId, first: int, last: int) -> ReadRange:
    return ReadRange(bookie_id, EntryId(first), EntryId(last))


def test_the_first_reads_are_of_whole_stripes_at_their_replicas() -> None:
    wanted = [read(bookie, 2, 3) for bookie in (A, B, C)]
    for first, replicas in ((4, (B, C, D)), (8, (C, D, A)), (12, (D, A, B))):
        wanted += [read(replica, first, first + 3) for replica in replicas]
    assert Reading(2).first_requests == wanted


def test_where_every_bookie_holds_everything_chunks_are_long() -> None:
    assert Reading(0, EVERYWHERE).first_requests == [
        read(bookie, 0, CHUNK_ENTRIES - 1) for bookie in (A, B, C)
    ]
    wide = QuorumSpec(3, 3, 2, 3000)
    assert Reading(2500, wide).first_requests == [read(bookie, 2500, 2999) for bookie in (A, B, C)]


@pytest.mark.parametrize("start", [ENTRY_ID_MAX, ENTRY_ID_MAX - 1])
def test_nothing_is_read_beyond_the_largest_entry_id(start: int) -> None:
    reading = Reading(start, EVERYWHERE)
    wanted = [read(bookie, start, ENTRY_ID_MAX) for bookie in (A, B, C)]
    assert sorted(reading.first_requests, key=lambda each: each.bookie_id) == wanted
    assert reading.phase.requests() == []
    reading.found(A, start, run(start, *[1] * (ENTRY_ID_MAX - start + 1)))
    assert len(reading.phase.take()) == 1
    assert reading.phase.requests() == []


def test_entries_are_taken_once_in_order() -> None:
    reading = Reading(0)
    assert reading.phase.take() == []
    assert reading.found(B, 4, run(4, 10, 11)) == [read(B, 6, 7)]
    assert reading.phase.take() == [], "what is before it is not known"
    assert reading.found(A, 0, run(0, 1, 2, 3)) == [read(A, 3, 3)]
    assert reading.phase.take() == [Stretch(EntryId(0), (1, 2, 3))]
    assert reading.phase.take() == []
    assert reading.found(A, 3, run(3, 4)) == []
    assert reading.phase.take() == [Stretch(EntryId(3), (4,)), Stretch(EntryId(4), (10, 11))]
    assert reading.phase.take() == []


def test_parts_of_a_run_outside_of_the_chunk_do_not_count() -> None:
    reading = Reading(2)
    reading.found(A, 2, run(0, 90, 91, 92), run(3, 93, 94), run(5, 95))
    assert reading.phase.take() == [Stretch(EntryId(2), (92, 93))]
    reading = Reading(4)
    assert reading.found(B, 4, run(2, 92, 93)) == []
    assert reading.phase.take() == []


def test_a_run_that_ends_before_the_chunk_does_not_move_what_is_in_it() -> None:
    reading = Reading(4)
    reading.found(B, 4, run(0, 90, 91), run(7, 9))
    reading.found(C, 4, run(4, 1, 1))
    assert reading.phase.take() == [Stretch(EntryId(4), (1, 1))]


def test_answers_that_were_not_asked_for_change_nothing() -> None:
    reading = Reading(0)
    assert reading.found(A, 1, run(1, 5)) == []
    assert reading.found(D, 0, run(0, 5)) == []
    assert reading.found(A, 1000, run(1000, 5)) == []
    reading.found(A, 0, run(0, 5))
    assert reading.found(A, 0, run(0, 5, 5)) == []
    assert reading.phase.take() == [Stretch(EntryId(0), (5,))]


def test_the_end_is_where_enough_replicas_never_had_the_entry() -> None:
    reading = Reading(0)
    reading.found(A, 0, run(0, 1, 2), status=Status.NO_SUCH_ENTRY)
    assert reading.phase.verdict() is None
    reading.found(B, 0, status=Status.NO_SUCH_LEDGER)
    assert reading.phase.verdict() is None, "a negative of an entry that another one has"
    assert reading.found(C, 0, run(0, 1, 2), status=Status.NO_SUCH_ENTRY) == []
    assert reading.phase.verdict() == Ended(EntryId(2))


def test_a_full_chunk_leaves_the_verdict_to_the_next_one() -> None:
    reading = Reading(0)
    reading.found(A, 0, run(0, 1, 2, 3, 4))
    assert reading.phase.verdict() is None
    for bookie in (B, C):
        reading.found(bookie, 4, status=Status.NO_SUCH_ENTRY)
    assert reading.phase.verdict() == Ended(EntryId(4))
    assert reading.phase.has_found_first()
    reading.phase.take()
    assert reading.phase.verdict() == Ended(EntryId(4))
    assert reading.phase.has_found_first()


def test_an_answer_without_entries_or_reason_is_unknown() -> None:
    reading = Reading(0)
    reading.found(A, 0)
    reading.phase.failed(RangeFailed(B, EntryId(0), "away"))
    assert reading.phase.verdict() is None
    reading.found(C, 0, status=Status.NO_SUCH_ENTRY)
    verdict = reading.phase.verdict()
    assert isinstance(verdict, Undecided)
    assert verdict.entry_id == 0
    assert verdict.missing == {A: "answered nothing", B: "away"}


def test_in_sync_negatives_wait_for_every_member() -> None:
    reading = Reading(0, QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 2))
    reading.found(A, 0, status=Status.NO_SUCH_ENTRY)
    reading.found(B, 0, status=Status.NO_SUCH_ENTRY)
    assert reading.phase.verdict() is None
    reading.phase.failed(RangeFailed(C, EntryId(0), "away"))
    assert reading.phase.verdict() == Ended(EntryId(0))


# -- the length before the start -------------------------------------------------------------------


def test_the_length_before_the_start_follows_from_a_complete_batch() -> None:
    assert Reading(0).phase.length_before_start() == 0
    reading = Reading(4)
    assert reading.phase.length_before_start() is None
    reading.found(B, 4, run(6, 30, before=120))
    assert reading.phase.length_before_start() is None, "what is between is not known"
    reading.found(C, 4, run(4, 10, 10))
    assert reading.phase.length_before_start() == 100
    reading.found(C, 7, run(7, 5, before=150))
    assert reading.phase.length_before_start() == 100


def test_the_first_complete_batch_is_used() -> None:
    reading = Reading(4)
    reading.found(B, 4, run(3, 7, 10, before=93), run(7, 5, before=130))
    assert reading.phase.length_before_start() == 100


def test_once_the_first_entries_are_taken_the_length_is_not_known_here() -> None:
    reading = Reading(4)
    reading.found(B, 4, run(4, 1, 2, 3, 4, before=100))
    reading.found(C, 8, run(8, 1, before=110))
    assert reading.phase.length_before_start() == 100
    reading.phase.take()
    assert reading.phase.length_before_start() is None
    for first, bookie_id in ((9, C), (12, D), (16, A)):
        reading.found(bookie_id, first, run(first, 1, 2, 3, 4))
    reading.phase.take()
    assert reading.phase.length_before_start() is None
    assert reading.phase.has_found_first()


# -- how much is read at once ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quorum", "opened"),
    [
        (EVERYWHERE, [1, 2, 4, CHUNKS_OPEN_MAX, CHUNKS_OPEN_MAX]),
        (STRIPES_OF_FOUR, [4, 8, 16, 32, 64, 64]),
    ],
)
def test_more_chunks_are_open_the_more_is_found(quorum: QuorumSpec, opened: list[int]) -> None:
    reading, counts = Reading(0, quorum), list[int]()
    firsts = {
        first_request.first_entry_id: first_request for first_request in reading.first_requests
    }
    for _ in opened:
        counts.append(len(firsts))
        first, request = min(firsts.items())
        del firsts[first]
        size = request.last_entry_id - first + 1
        reading.found(request.bookie_id, first, run(first, *[1] * size))
        reading.phase.take()
        firsts |= {read_range.first_entry_id: read_range for read_range in reading.phase.requests()}
    assert counts == opened
