"""Who must hold which entries, and which copies are left, against naive twins that follow the text
of the rules entry by entry.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.copies import (
    Copies,
    FragmentCopies,
    Holders,
    Loss,
    bookies_with_entries,
    bytes_on,
    copies_of,
    copy_count,
    covers,
    fewest_copies,
    fragment_copies,
    holders_of_entry,
    last_alike,
    loss_of,
    most_out,
    negatives_needed,
    ranges_by_bookie,
    ranges_on,
    stripe_end,
    windows,
    write_set,
    write_set_positions,
    write_sets,
)
from metadata.ledgers.entry_ranges import Range, merged
from metadata.ledgers.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from metadata.ledgers.lost_entries import LostRange, with_ranges
from tests.support.sample_ledgers import bookies, closed_ledger, ledger_of, open_ledger

A, B, C, D, E = (BookieId(name) for name in "abcde")
LEDGER = ledger_of((0, "abc"), (10, "abd"))
STRIPED = replace(
    LEDGER,
    quorum=QuorumSpec(5, 2, 2, stripe_entries=4),
    fragments=(Fragment(EntryId(0), (A, B, C, D, E)),),
)


def closed(ledger: LedgerMetadata, last: int) -> LedgerMetadata:
    return replace(ledger, state=LedgerState.CLOSED, last_entry_id=EntryId(last), length=last + 1)


@pytest.mark.parametrize(
    ("up", "certain", "possible", "loss"),
    [
        ("abcd", 2, 3, None),
        ("abd", 1, 2, None),
        ("ad", 0, 1, Loss.MAY_BE_UNREADABLE),
        ("c", 0, 0, Loss.UNREADABLE),
    ],
)
def test_copies_of_a_quorum_ledger(up: str, certain: int, possible: int, loss: Loss | None) -> None:
    copies = fewest_copies(LEDGER, [BookieId(name) for name in up])
    assert copies is not None
    assert (copies.certain, copies.possible, loss_of(copies)) == (certain, possible, loss)


def test_a_copy_on_a_bookie_in_limbo_is_possible_and_not_certain() -> None:
    """Rule 9.13."""
    copies = fewest_copies(LEDGER, [A, B, C, D], [A])
    assert copies == Copies(EntryId(0), 1, 3, 2)
    assert fewest_copies(LEDGER, [B, C, D], [A]) == Copies(EntryId(0), 1, 2, 2)
    lone = fewest_copies(LEDGER, [A], [A])
    assert lone == Copies(EntryId(0), 0, 1, 2)
    assert loss_of(lone) is Loss.MAY_BE_UNREADABLE


@pytest.mark.parametrize(
    ("quorum", "up", "loss"),
    [
        (QuorumSpec(3, 3, 3), (A, B), Loss.SHORT_OF_ACK_QUORUM),
        (QuorumSpec(3, 3, 3), (A,), Loss.SHORT_OF_ACK_QUORUM),
        (QuorumSpec(3, 3, 3), (), Loss.UNREADABLE),
        (QuorumSpec(1, 1, 1), (A,), Loss.ONE_COPY),
    ],
)
def test_what_a_ledger_lacks(quorum: QuorumSpec, up: tuple[BookieId, ...], loss: Loss) -> None:
    members = (A, B, C)[: quorum.ensemble_size]
    ledger = replace(LEDGER, quorum=quorum, fragments=(Fragment(EntryId(0), members),))
    copies = fewest_copies(ledger, up)
    assert copies is not None
    assert loss_of(copies) is loss


def test_an_in_sync_fragment_has_a_copy_on_each_of_its_members() -> None:
    ledger = replace(
        LEDGER,
        quorum=QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC),
        fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(5), (A, B))),
    )
    assert fewest_copies(ledger, (A, B, C)) == Copies(EntryId(5), 2, 2, 2)
    assert fewest_copies(ledger, (A,)) == Copies(EntryId(0), 1, 1, 3)


def test_all_write_sets_of_an_open_fragment_count() -> None:
    found = [each.bookies for each in write_sets(STRIPED)]
    assert found == [(A, B), (B, C), (C, D), (D, E), (E, A)]


@pytest.mark.parametrize(("last", "count"), [(0, 1), (3, 1), (4, 2), (19, 5), (400, 5)])
def test_only_write_sets_with_entries_of_a_closed_ledger_count(last: int, count: int) -> None:
    found = [each.bookies for each in write_sets(closed(STRIPED, last))]
    assert found == [each.bookies for each in write_sets(STRIPED)][:count]


def test_members_that_hold_every_entry_have_one_write_set_and_one_range() -> None:
    assert windows(3, 2) == ((0, 1), (1, 2), (2, 0))
    assert windows(3, 3) == ((0, 1, 2),)
    ledger = replace(closed(LEDGER, 19), quorum=QuorumSpec(3, 3, 2, stripe_entries=2))
    first, second = copies_of(ledger)
    assert [list(first.ranges_at(each)) for each in (0, 1, 2, None)] == [[(0, 9)]] * 4
    assert [list(second.ranges_at(each)) for each in (0, 1, 2, None)] == [[(10, 19)]] * 4


def test_a_fragment_begins_in_the_middle_of_a_stripe() -> None:
    first, second = Fragment(EntryId(0), (A, B, C, D, E)), Fragment(EntryId(6), (E, D, C, B, A))
    found = list(write_sets(closed(replace(STRIPED, fragments=(first, second)), 8)))
    assert [(each.first_entry_id, each.bookies) for each in found] == [
        (0, (A, B)),
        (0, (B, C)),
        (6, (D, C)),
        (6, (C, B)),
    ]


def test_an_empty_ledger_or_fragment_has_no_copies_to_lose() -> None:
    empty = replace(LEDGER, fragments=LEDGER.fragments[:1])
    assert fewest_copies(closed(empty, -1), ()) is None
    in_first = closed(LEDGER, 9)
    assert [each.first_entry_id for each in write_sets(in_first)] == [0]
    assert fewest_copies(in_first, (A, B, C)) == Copies(EntryId(0), 2, 3, 2)


def test_bytes_on_a_bookie_follow_its_share_of_the_entries() -> None:
    ledger = replace(closed(LEDGER, 19), length=2_000)  # 10 entries in each fragment
    assert [bytes_on(ledger, bookie) for bookie in (A, C, D, E)] == [2_000, 1_000, 1_000, 0]
    striped = replace(closed(STRIPED, 19), length=1_000)
    assert bytes_on(striped, A) == 400
    assert bytes_on(LEDGER, A) == 0, "the length of an open ledger is unknown"
    empty = replace(closed(STRIPED, -1), length=0)
    assert bytes_on(empty, A) == 0
    ends_early = replace(closed(LEDGER, 4), length=500)  # before its last fragment
    assert [bytes_on(ends_early, bookie) for bookie in (C, D)] == [500, 0]


# -- write sets and coverage -----------------------------------------------------------------------


@st.composite
def quorums(draw: st.DrawFn) -> QuorumSpec:
    ack, write, ensemble = sorted(draw(st.lists(st.integers(1, 6), min_size=3, max_size=3)))
    return QuorumSpec(ensemble, write, ack, draw(st.integers(1, 5)))


def naive_covers(quorum: QuorumSpec, known: list[int]) -> bool:
    """Return whether no ack quorum can have formed among silent bookies, in any write set."""
    for stripe in range(quorum.ensemble_size):
        replicas = [(stripe + i) % quorum.ensemble_size for i in range(quorum.write_quorum)]
        for ack_set in combinations(replicas, quorum.ack_quorum):
            if not any(position in known for position in ack_set):
                return False
    return True


@given(quorums(), st.data())
def test_coverage_means_that_every_ack_quorum_is_touched(
    quorum: QuorumSpec, data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.integers(0, quorum.ensemble_size - 1), unique=True))
    assert covers(quorum, known) is naive_covers(quorum, known)


@given(quorums())
def test_enough_negatives_touch_every_ack_quorum_of_a_write_set(quorum: QuorumSpec) -> None:
    replicas, needed = range(quorum.write_quorum), negatives_needed(quorum)

    def proves(negatives: int) -> bool:
        silent = [r for r in replicas if r >= negatives]
        return len(silent) < quorum.ack_quorum

    assert proves(needed)
    assert not proves(needed - 1)


@given(quorums(), st.integers(0, 200))
def test_write_sets_walk_round_the_ensemble_once_per_stripe(
    quorum: QuorumSpec, entry_id: int
) -> None:
    ensemble = tuple(BookieId(f"b{i}") for i in range(quorum.ensemble_size))
    # Deal the stripes out one after the other, as one would with cards.
    dealt: list[list[BookieId]] = []
    for _stripe in range(entry_id // quorum.stripe_entries + 1):
        start = len(dealt)
        doubled = ensemble * (start // quorum.ensemble_size + 3)
        dealt.append(list(doubled[start : start + quorum.write_quorum]))
    fragment = Fragment(EntryId(0), ensemble)
    found = write_set(quorum, fragment, EntryId(entry_id))
    assert list(found) == dealt[-1]
    assert len(set(found)) == quorum.write_quorum
    assert found == tuple(ensemble[p] for p in write_set_positions(quorum, EntryId(entry_id)))


@given(quorums(), st.integers(0, 200))
def test_a_stripe_ends_where_the_write_set_may_change(quorum: QuorumSpec, entry_id: int) -> None:
    end = stripe_end(quorum, EntryId(entry_id))
    assert end >= entry_id
    assert (end + 1) % quorum.stripe_entries == 0
    assert all(number % quorum.stripe_entries for number in range(entry_id + 1, end + 1))


# -- the naive twin --------------------------------------------------------------------------------

NAMES = "abcdefg"
END = 45


@st.composite
def drawn_ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Draw a ledger of at most four fragments, open or closed, striped or in in-sync mode, with
    fragments without entries and accepted losses.
    """
    size = draw(st.integers(1, 5))
    if is_in_sync := draw(st.booleans()):
        quorum = QuorumSpec(size, size, size, draw(st.integers(1, 7)), QuorumMode.IN_SYNC)
    else:
        write = draw(st.integers(1, size))
        ack = draw(st.integers(1, write))
        quorum = QuorumSpec(size, write, ack, draw(st.integers(1, 7)))
    begins = sorted({0, *draw(st.lists(st.integers(1, END - 6), max_size=3))})
    parts = []
    for begin in begins:
        count = draw(st.integers(1, size)) if is_in_sync else size
        parts.append((begin, draw(st.permutations(NAMES))[:count]))
    ledger = ledger_of(*parts, quorum=quorum)
    if draw(st.booleans()):
        return ledger
    last = draw(st.sampled_from([begins[-1] - 1, begins[-1], END - 1]))
    gone = draw(st.lists(st.integers(0, last), unique=True)) if last >= 0 else []
    lost = with_ranges((), merged((each, each) for each in gone), 5)
    if draw(st.booleans()):
        lost = (*lost, LostRange(EntryId(last + 1), EntryId(ENTRY_ID_MAX), 6))
    closed = replace(ledger, state=LedgerState.CLOSED, last_entry_id=EntryId(last), length=0)
    return replace(closed, length=(last + 1) * 10, lost=lost)


@dataclass
class Twin:
    """Who holds which entries of a ledger, entry by entry."""

    ledger: LedgerMetadata
    last: int

    def fragment_of(self, entry_id: int) -> int:
        return sum(fragment.first_entry_id <= entry_id for fragment in self.ledger.fragments) - 1

    def write_set(self, entry_id: int) -> tuple[BookieId, ...]:
        quorum = self.ledger.quorum
        ensemble = self.ledger.fragments[self.fragment_of(entry_id)].ensemble
        if quorum.is_in_sync:  # each member holds every entry (11.1)
            start = entry_id // quorum.stripe_entries
            return tuple(ensemble[(start + i) % len(ensemble)] for i in range(len(ensemble)))
        positions = [
            (entry_id // quorum.stripe_entries + i) % quorum.ensemble_size
            for i in range(quorum.write_quorum)
        ]
        return tuple(ensemble[position] for position in positions)

    def is_lost(self, entry_id: int) -> bool:
        ranges = self.ledger.lost
        return any(range_.first_entry_id <= entry_id <= range_.last_entry_id for range_ in ranges)

    def needed(self) -> Iterator[int]:
        return (number for number in range(self.last + 1) if not self.is_lost(number))

    def held(self) -> dict[BookieId, list[int]]:
        held = defaultdict[BookieId, list[int]](list)
        for each in self.needed():
            for bookie_id in self.write_set(each):
                held[bookie_id].append(each)
        return held


def twin_of(ledger: LedgerMetadata) -> Twin:
    """Return the twin: of an open ledger with as many entries as let each write set have one."""
    if ledger.last_entry_id is not None:
        return Twin(ledger, ledger.last_entry_id)
    turn = ledger.quorum.ensemble_size * ledger.quorum.stripe_entries
    return Twin(ledger, ledger.last_fragment.first_entry_id + turn)


def entries(ranges: Iterator[Range] | list[Range]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


@given(drawn_ledgers(), st.integers(-1, END + 5))
def test_each_bookie_must_hold_what_the_rule_says(ledger: LedgerMetadata, last: int) -> None:
    until = last if ledger.last_entry_id is None else min(last, ledger.last_entry_id)
    held = Twin(ledger, until).held()
    found = ranges_by_bookie(ledger, last)
    assert {bookie: entries(ranges) for bookie, ranges in found.items() if ranges} == held
    assert copy_count(ledger, last) == sum(map(len, held.values()))
    for ranges in found.values():
        assert ranges == merged(ranges)


@given(drawn_ledgers())
def test_members_of_a_closed_ledger_hold_ranges_of_one_fragment(ledger: LedgerMetadata) -> None:
    if ledger.last_entry_id is None:
        ledger = ledger.with_closed(EntryId(END), (END + 1) * 10, ledger.update_token)
    twin = twin_of(ledger)
    held = twin.held()
    for bookie_id in bookies(NAMES):
        ranges = list(ranges_on(ledger, bookie_id))
        assert entries(ranges) == held.get(bookie_id, [])
        assert all(twin.fragment_of(first) == twin.fragment_of(last) for first, last in ranges)
        assert bytes_on(ledger, bookie_id) == 10 * len(held.get(bookie_id, []))


@given(drawn_ledgers())
def test_write_sets_with_entries_are_those_of_some_entry(ledger: LedgerMetadata) -> None:
    twin = twin_of(ledger)
    sets = {(twin.fragment_of(each), frozenset(twin.write_set(each))) for each in twin.needed()}
    found = {
        (twin.fragment_of(each.first_entry_id), frozenset(each.bookies))
        for each in write_sets(ledger)
    }
    assert found == sets
    assert set(bookies_with_entries(ledger)) == set(twin.held())


@given(drawn_ledgers(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_the_fewest_copies_are_those_of_some_entry(
    ledger: LedgerMetadata, up: set[str], limbo: set[str]
) -> None:
    twin, present, unproven = twin_of(ledger), bookies(up), bookies(limbo)
    counts = []
    for each in twin.needed():
        members = twin.write_set(each)
        ack = len(members) if ledger.quorum.is_in_sync else ledger.quorum.ack_quorum
        doubtful = [b for b in members if b not in present or b in unproven]
        counts.append((max(0, ack - len(doubtful)), sum(b in present for b in members)))
    found = fewest_copies(ledger, present, unproven)
    assert (found and (found.certain, found.possible)) == min(counts, default=None)


@given(drawn_ledgers(), st.integers(0, END))
def test_a_position_has_the_entries_of_its_write_sets(ledger: LedgerMetadata, first: int) -> None:
    twin = Twin(ledger, END if ledger.last_entry_id is None else ledger.last_entry_id)
    begin = twin.fragment_of(first)
    for index, copies in enumerate(copies_of(ledger, first, END), begin):
        needed = [e for e in twin.needed() if e >= first and twin.fragment_of(e) == index]
        assert copies == fragment_copies(ledger, index, first, END)
        assert entries(copies.ranges) == entries(copies.ranges_at(None)) == needed
        assert copies.entry_count == copies.count_at(None) == len(needed)
        assert copies.is_empty is not bool(needed)
        assert copies.lacking_members == (
            ledger.quorum.ensemble_size - len(copies.ensemble) if needed else 0
        )
        for position, bookie_id in enumerate(copies.ensemble):
            held = [each for each in needed if bookie_id in twin.write_set(each)]
            assert entries(copies.ranges_at(position)) == held
            assert copies.count_at(position) == len(held)
        used = {copies.ensemble.index(twin.write_set(each)[0]) for each in needed}
        if copies.quorum.write_quorum == copies.quorum.ensemble_size:
            used = {0} if needed else set()
        starts = 1 if len(copies.ensemble) == copies.quorum.write_quorum else len(copies.ensemble)
        assert set(copies.empty_starts) == set(range(starts)) - used


@given(drawn_ledgers(), st.integers(0, END), st.integers(0, END))
def test_entries_are_alike_while_bookies_and_loss_are(
    ledger: LedgerMetadata, first: int, more: int
) -> None:
    twin = Twin(ledger, END)
    assert holders_of_entry(ledger, first) == twin.write_set(first)
    if ledger.last_entry_id is not None and first > ledger.last_entry_id:
        return
    end = last_alike(ledger, EntryId(first), EntryId(first + more))
    until = first + more if ledger.last_entry_id is None else ledger.last_entry_id
    assert first <= end <= min(first + more, until)

    def kind(entry_id: int) -> object:
        members = frozenset(twin.write_set(entry_id))
        return twin.fragment_of(entry_id), members, twin.is_lost(entry_id)

    assert len({kind(number) for number in range(first, end + 1)}) == 1


def test_a_huge_ledger_costs_no_step_for_each_entry() -> None:
    quorum = QuorumSpec(5, 3, 2, stripe_entries=1)
    last = 10**15
    ledger = closed(replace(open_ledger("abcde"), quorum=quorum), last)
    (copies,) = copies_of(ledger)
    assert sum(copies.count_at(position) for position in range(5)) == 3 * (last + 1)
    assert next(ranges_on(ledger, BookieId("e"))) == (2, 4)
    assert copy_count(ledger, last) == 3 * (last + 1)
    assert fewest_copies(ledger, bookies("abc")) == Copies(EntryId(0), 0, 1, 2)


@given(quorums(), st.data())
def test_the_write_set_with_the_most_positions_out_counts(
    quorum: QuorumSpec, data: st.DataObject
) -> None:
    size = quorum.ensemble_size
    out = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    stripes = (
        write_set_positions(quorum, number * quorum.stripe_entries) for number in range(size)
    )
    assert most_out(quorum, out) == max(sum(out[p] for p in positions) for positions in stripes)


def test_the_end_of_an_open_fragment_is_not_known() -> None:
    *_, last = copies_of(open_ledger("abc", "abd"))
    assert (last.first_entry_id, last.last_entry_id, last.empty_starts) == (10, None, ())
    *_, given_end = copies_of(open_ledger("abc", "abd"), last=14)
    assert given_end.ranges == [(10, 14)]
    assert isinstance(given_end, FragmentCopies)
    assert given_end.holders == Holders(bookies("abd"))


def test_a_mark_changes_nothing_for_the_members() -> None:
    ledger = closed_ledger("abc")
    (fragment,) = ledger.fragments
    marked = replace(ledger, fragments=(replace(fragment, incoming=(D,)),))
    assert list(ranges_on(marked, D)) == []
    assert bookies_with_entries(marked) == [A, B, C]
