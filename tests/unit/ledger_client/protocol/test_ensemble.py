"""Failed and parked members, false fences, and the members that an ensemble can do without (rules
4.7, 5.3-5.7).
"""

from itertools import combinations

import pytest

from ledger_client.protocol.append_events import FailureKind
from ledger_client.protocol.ensemble import (
    FALSE_FENCE,
    FALSE_FENCES_MAX,
    EnsembleHealth,
    bookies_at,
    positions_mask,
)
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import write_set_positions
from metadata.ledgers.ledger_metadata import QuorumSpec

A, B, C, D, E = ENSEMBLE = tuple(map(BookieId, "abcde"))
GONE, FENCED, SUSPECTED = FailureKind.GONE, FailureKind.FENCED, FailureKind.SUSPECTED
LAGGING, BACKLOG = FailureKind.LAGGING, FailureKind.BACKLOG


def health(quorum: QuorumSpec | None = None) -> EnsembleHealth:
    return EnsembleHealth(quorum or QuorumSpec(5, 3, 2))


# -- kinds of failures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        ((SUSPECTED, GONE), 1),
        ((SUSPECTED, FENCED), 1),
        ((GONE, FENCED), 1),
        ((LAGGING, GONE), 1),
        ((BACKLOG, GONE), 1),
        ((GONE, SUSPECTED), 0),
        ((FENCED, GONE), 0),
        ((FENCED, SUSPECTED), 0),
        ((GONE, GONE), 0),
        ((FENCED, FENCED), 0),
        ((LAGGING, SUSPECTED), 0),
        ((SUSPECTED, BACKLOG), 0),
    ],
)
@pytest.mark.parametrize("is_parked", [False, True])
def test_the_more_severe_failure_is_kept_and_of_equal_ones_the_first(
    kinds: tuple[FailureKind, FailureKind], kept: int, is_parked: bool
) -> None:
    found = health()
    found.fail(A, kinds[0], "0")
    if is_parked:
        found.park_all()
    found.fail(A, kinds[1], "1")
    assert found.reasons() == {A: f"{kinds[kept]}: {kept}"}
    is_still_parked = is_parked and kept == 0
    assert found.parked == ([A] if is_still_parked else [])
    assert found.has_failed is not is_still_parked
    assert found.out == [A]


def test_a_member_is_failed_or_parked_never_both() -> None:
    found = health()
    assert found.is_whole
    found.fail(A, GONE, "x")
    found.fail(B, LAGGING, "y")
    assert (list(found.failed), found.parked) == ([A, B], [])
    found.park_all()
    assert (list(found.failed), found.parked) == ([], [A, B])
    assert not found.is_whole
    found.unpark_all()
    assert (list(found.failed), found.parked) == ([A, B], [])
    assert found.forgive(A)
    assert not found.forgive(A)
    found.keep_only((A, C))
    assert found.is_whole
    assert found.out == []


def test_only_a_member_that_is_out_because_it_lags_is_lagging() -> None:
    found = health()
    assert not found.is_lagging(A)
    found.fail(A, LAGGING, "x")
    found.fail(B, GONE, "y")
    assert [found.is_lagging(bookie) for bookie in (A, B, C)] == [True, False, False]
    found.park_all()
    assert [found.is_lagging(bookie) for bookie in (A, B, C)] == [True, False, False]


# -- fences ----------------------------------------------------------------------------------------


def test_a_fence_is_false_once_a_read_that_began_later_finds_the_ledger_open() -> None:
    found = health()
    found.fail(A, GONE, "x")
    assert not found.begin_check()
    found.fail(B, FENCED, "y")
    assert found.has_unchecked
    assert found.begin_check()
    found.fail(C, FENCED, "after the read began")
    found.end_check()
    assert found.false_fences == [B]
    assert (found.failed[B].kind, found.failed[B].reason) == (GONE, FALSE_FENCE)
    assert found.has_unchecked
    assert [found.fences(bookie) for bookie in (A, B, C, D)] == [False, True, True, False]
    found.end_check()
    assert found.false_fences == [B], "each is counted once"


def test_a_member_that_returned_during_the_read_has_no_false_fence() -> None:
    found = health()
    found.fail(A, FENCED, "x")
    found.begin_check()
    found.forgive(A)
    found.end_check()
    assert found.false_fences == []
    assert found.is_whole


def test_a_known_false_fence_needs_no_other_read() -> None:
    found = health()
    found.fail(A, FENCED, "x")
    found.begin_check()
    found.end_check()
    found.forgive(A)
    found.fail(A, SUSPECTED, "silent")
    assert found.failed[A].kind is SUSPECTED
    found.fail(A, FENCED, "again")
    assert (found.failed[A].kind, found.failed[A].reason) == (GONE, FALSE_FENCE)
    assert not found.has_unchecked
    found.keep_only((B, C))
    assert found.reasons() == {A: FALSE_FENCE}, "it must not be chosen again"


def test_more_false_fences_than_one_writer_goes_on_with() -> None:
    found = health()
    for bookie in ENSEMBLE:
        assert not found.has_many_false_fences
        found.fail(bookie, FENCED, "x")
        found.begin_check()
        found.end_check()
    assert len(found.false_fences) == FALSE_FENCES_MAX + 1
    assert found.has_many_false_fences


# -- what can be spared ----------------------------------------------------------------------------


def lacks_quorum(quorum: QuorumSpec, out: set[BookieId]) -> bool:
    """Return whether the write set of some entry has fewer members than the ack quorum."""
    return any(
        sum(ENSEMBLE[p] not in out for p in write_set_positions(quorum, EntryId(entry)))
        < quorum.ack_quorum
        for entry in range(quorum.ensemble_size)
    )


@pytest.mark.parametrize("sizes", [(5, 3, 2), (5, 2, 1), (4, 3, 3), (5, 4, 2), (3, 3, 2)])
def test_an_ensemble_does_without_members_while_every_entry_reaches_its_ack_quorum(
    sizes: tuple[int, int, int],
) -> None:
    quorum = QuorumSpec(*sizes, stripe_entries=1)
    ensemble = ENSEMBLE[: quorum.ensemble_size]
    for count in range(len(ensemble) + 1):
        for out in combinations(ensemble, count):
            found = health(quorum)
            for number, bookie in enumerate(out):
                found.fail(bookie, GONE, "x")
                if number % 2:
                    found.park(ensemble)
            for bookie in out:
                found.fail(bookie, GONE, "x")
            assert found.must_replace(ensemble) is lacks_quorum(quorum, set(found.out))
            assert found.can_park(ensemble) is not lacks_quorum(quorum, set(found.out))


def test_suspected_members_count_as_present_only_for_parking() -> None:
    found, ensemble = health(QuorumSpec(3, 3, 2)), (A, B, C)
    found.fail(A, SUSPECTED, "x")
    found.fail(B, SUSPECTED, "y")
    assert found.must_replace(ensemble)
    assert found.can_park(ensemble)
    assert found.gone() == []
    found.fail(C, GONE, "z")
    assert found.gone() == [C]
    found.park(ensemble)
    assert found.out == [C], "the suspected ones get another chance"
    assert found.parked == [C]


def test_no_member_is_parked_when_entries_need_it() -> None:
    found, ensemble = health(QuorumSpec(3, 3, 2)), (A, B, C)
    found.fail(A, LAGGING, "x")
    found.fail(B, BACKLOG, "y")
    found.fail(C, GONE, "z")
    found.park(ensemble)
    assert found.out == [B], "its copies were dropped: it is taken back once it takes more"
    assert found.can_park(ensemble)
    assert found.forgive(B)
    assert found.is_whole


# -- masks -----------------------------------------------------------------------------------------


def test_masks_name_positions() -> None:
    assert positions_mask(ENSEMBLE, []) == 0
    assert positions_mask(ENSEMBLE, [A, D, BookieId("x")]) == 0b1001
    assert bookies_at(ENSEMBLE, 0b1001) == (A, D)
    assert bookies_at(ENSEMBLE, 0b11111) == ENSEMBLE
    assert bookies_at(ENSEMBLE, 0) == ()
