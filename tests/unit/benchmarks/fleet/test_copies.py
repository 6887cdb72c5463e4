"""Counting copies by ranges agrees with counting them entry by entry; sums over time are exact."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.ledgers import Gap, Ledger, Seat, new_ledger
from benchmarks.fleet.measures import Measures
from benchmarks.fleet.tracking import CopyTracker
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec
from tests.support.benchmarks.fleet.small_fleet import NO_FAULTS, bookie, simulation

QUORUM = QuorumSpec(3, 3, 2)
BOOKIES = [bookie(number) for number in range(5)]
ENTRIES = 20


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    firsts = [0, *sorted(draw(st.sets(st.integers(1, ENTRIES - 1), max_size=3)))]
    ensembles = [tuple(draw(st.permutations(BOOKIES))[:3]) for _ in firsts]
    metadata = new_ledger(1, QUORUM, ensembles[0], 0)
    fragments = tuple(Fragment(EntryId(f), e) for f, e in zip(firsts, ensembles, strict=True))
    ledger = Ledger(replace(metadata, fragments=fragments), 0, 0.0, 1.0, base=ENTRIES)
    for each in draw(st.lists(st.sampled_from(BOOKIES), unique=True)):
        first = draw(st.integers(0, ENTRIES))
        end = draw(st.one_of(st.none(), st.integers(first, ENTRIES)))
        ledger.gaps[each] = [Gap(first, end, will_arrive=False)]
    return ledger


def naive_copies(ledger: Ledger, away: list[BookieId]) -> list[int]:
    counts = [0, 0, 0, 0]
    for entry_id in range(ENTRIES):
        fragment = ledger.metadata.fragment_of(EntryId(entry_id))
        holders = [each for each in fragment.ensemble if each not in away]
        for each, gaps in ledger.gaps.items():
            gap = gaps[0]
            is_missing = gap.first <= entry_id and (gap.end is None or entry_id < gap.end)
            if each in holders and is_missing:
                holders.remove(each)
        counts[len(holders)] += 1
    return counts


@given(ledgers(), st.lists(st.sampled_from(BOOKIES), unique=True))
def test_copies_agree_with_the_naive_count(ledger: Ledger, away: list[BookieId]) -> None:
    assert ledger.copies(0.0, away) == naive_copies(ledger, away)


def test_a_tracker_integrates_growing_and_constant_counts() -> None:
    away: dict[BookieId, None] = {}
    tracker = CopyTracker(away, 3)
    ledger = Ledger(new_ledger(1, QUORUM, tuple(BOOKIES[:3]), 0), 0, 0.0, 1.0, running_since=0.0)
    tracker.before(ledger, 10.0)
    away[BOOKIES[0]] = None
    tracker.after(ledger, 10.0)
    tracker.before(ledger, 20.0)  # from 10 to 20 entries on two bookies, over 10 s
    ledger.stop(20.0)
    tracker.after(ledger, 20.0)
    tracker.before(ledger, 25.0)  # 20 entries, over 5 s
    away[BOOKIES[1]] = None
    away[BOOKIES[2]] = None
    tracker.after(ledger, 25.0)
    assert tracker.entry_seconds == [0, 0, 150 + 100]
    assert (tracker.lost_entries, list(tracker.lost_ledgers)) == (20, [1])
    assert tracker.peak == [20, 20, 20]
    tracker.drop(ledger, 30.0)
    assert tracker.entry_seconds == [100, 0, 250]
    assert tracker.deviating() == []


def test_a_tracker_follows_an_empty_fragment_that_will_grow() -> None:
    tracker = CopyTracker({}, 3)
    ledger = Ledger(new_ledger(1, QUORUM, tuple(BOOKIES[:2]), 0), 0, 0.0, 1.0, running_since=0.0)
    tracker.before(ledger, 0.0)
    tracker.after(ledger, 0.0)
    tracker.before(ledger, 10.0)
    assert tracker.entry_seconds == [0, 0, 50]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=8).map(
        lambda spans: sorted((begin, begin + length) for begin, length in spans)
    )
)
def test_overlapping_outages_count_once(spans: list[tuple[int, int]]) -> None:
    measures, seat = Measures(end_s=120), quiet_seat()
    for begin, end in spans:
        measures.outage(seat, begin, end)
    out = [any(begin <= second < end for begin, end in spans) for second in range(120)]
    assert measures.outage_s == sum(out)
    runs = "".join("x" if each else " " for each in out).split()
    touching = max(map(len, runs), default=0)
    assert measures.longest_outage_s == touching


def test_an_outage_recorded_late_is_joined_to_the_previous_one() -> None:
    measures, seat = Measures(end_s=100), quiet_seat()
    measures.outage(seat, 20, 30)
    measures.outage(seat, 10, 25)
    assert (measures.outage_s, measures.longest_outage_s) == (20, 20)


def test_stored_entries_count_from_the_start_of_the_measured_time() -> None:
    measures = Measures(end_s=100)
    ledger = Ledger(new_ledger(1, QUORUM, tuple(BOOKIES[:3]), 0), 0, -10.0, 1.0, base=30)
    ledger.closed_s = 20.0  # 10 entries at 0, 30 at 20
    measures.stored(ledger, 50.0)
    assert measures.stored_entry_s == pytest.approx(20 * 20 + 30 * 30)


def quiet_seat() -> Seat:
    run = simulation("all-of-3", NO_FAULTS)
    run.world.agenda.run_until(0)
    return run.world.seats[0]
