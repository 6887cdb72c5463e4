"""Moves of copies that share a rack or a host: which ones are made, and that they end."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import Holders
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.location import Place
from metadata.registry.registration import BookieRegistration
from quire.repair.ledger_index import LedgerIndex, RankedLedger
from quire.repair.needs import Cause, Need, RepairClass, needs_of
from quire.repair.spread import (
    NO_PLACES,
    Places,
    is_better_place,
    misplaced_member,
    places_of,
)
from tests.support.sample_ledgers import QUORUM, bookies, closed_ledger, open_ledger, standings

STRIPED = QuorumSpec(4, 2, 2)


def places(text: str, usable: str | None = None) -> Places:
    """Return the places that a text like `a1x b1y` names: bookie, rack and host."""
    known = {BookieId(part[0]): Place(part[1], part[2]) for part in text.split()}
    return Places(known, tuple(known) if usable is None else bookies(usable))


def holders(names: str, *empty_starts: int) -> Holders:
    return Holders(bookies(names), empty_starts)


def test_a_member_that_shares_a_rack_moves_to_another_rack() -> None:
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b1v c2w d3x")) in bookies("ab")
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b1v c2w d2x")) is None
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b2v c3w d4x")) is None


def test_a_member_that_shares_a_host_moves_to_another_host() -> None:
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b1u c1w d1x")) in bookies("ab")
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b1u c1w d1w")) is None


def test_no_rack_is_given_up_for_a_host() -> None:
    known = places("a1u b2v c2v d2x")
    assert misplaced_member(holders("abc"), QUORUM, known) in bookies("bc")
    assert not is_better_place(holders("abc"), QUORUM, known, BookieId("a"), BookieId("d"))


def test_only_usable_bookies_are_targets() -> None:
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b1v c2w d3x", "abc")) is None


def test_nothing_moves_while_a_member_is_away() -> None:
    """It may be the one in another rack."""
    assert misplaced_member(holders("abc"), QUORUM, places("a1u b1v d3x")) is None
    assert misplaced_member(holders("abc"), QUORUM, NO_PLACES) is None


def test_each_write_set_of_stripes_counts() -> None:
    """All racks are used, but the neighbours a and b are in one."""
    known = places("a1u b1v c2w d2x e3y")
    member = misplaced_member(holders("abcd"), STRIPED, known)
    assert member is not None
    assert is_better_place(holders("abcd"), STRIPED, known, member, BookieId("e"))
    assert misplaced_member(holders("acbd"), STRIPED, known) is None


def test_write_sets_without_entries_need_no_better_place() -> None:
    """The neighbours a and b share a rack, but no entry begins at a."""
    known = places("a1u b1v c2w d2x e3y")
    assert misplaced_member(holders("abcd", 0, 2), STRIPED, known) is None
    member = misplaced_member(holders("abcd", 2), STRIPED, known)
    assert member is not None
    assert not is_better_place(holders("abcd", 0, 2), STRIPED, known, member, BookieId("e"))
    ended = replace(closed_ledger("acd", "abc"), last_entry_id=EntryId(9))
    assert needs_of(ended, standings(), places("a1u b1v c2w d3x")) == []


def test_a_ledger_with_another_need_moves_nothing_else() -> None:
    known = places("a1u b1v c2w d3x")
    ledger = closed_ledger("abc", "acd")
    assert needs_of(ledger, standings(draining="c"), known) == needs_of(
        ledger, standings(draining="c")
    )
    (need,) = needs_of(ledger, standings(), known)
    assert (need.first_entry_id, need.cause) == (0, Cause.MISPLACED)
    assert needs_of(open_ledger("abc"), standings(), known) == []
    assert isinstance(need, Need)


def test_moves_are_the_least_urgent_and_end_with_the_places() -> None:
    index = LedgerIndex()
    index.put(closed_ledger("abc", "acd", ledger_id=1, length=1_000))
    index.put(closed_ledger("ecd", ledger_id=2, length=10_000))
    known = places("a1u b1v c2w d3x e1y")
    plan = index.plan(standings(draining="e"), (), 10, places=known)
    assert [ledger.repair_class for ledger in plan.first] == [
        RepairClass.DRAINING,
        RepairClass.MISPLACED,
    ]
    assert index.plan(standings(), (), 10, places=known).first == (
        RankedLedger(RepairClass.MISPLACED, 500, plan.first[1].ledger_id),
    )
    assert index.plan(standings(), (), 10).first == ()
    index.put(closed_ledger("abc", ledger_id=3, length=7))
    assert len(index.plan(standings(), (), 10, places=known).first) == 2
    assert index.plan(standings(), (), 10, places=places("a1u b1v c2w")).first == ()


def test_a_misplaced_copy_is_as_urgent_as_the_other_needs_of_its_ledger() -> None:
    index = LedgerIndex()
    index.put(closed_ledger("abc", length=1_000))
    known = places("a1u b1v c2w d3x", usable="abd")
    (ranked,) = index.plan(standings(draining="c"), (), 10, places=known).first
    assert (ranked.repair_class, ranked.byte_count) == (RepairClass.DRAINING, 1_000)


RACKS = st.lists(st.tuples(st.sampled_from("123"), st.sampled_from("uv")), min_size=4, max_size=9)


def _places_of(drawn: Sequence[tuple[str, str]]) -> Places:
    names = bookies("abcdefghi"[: len(drawn)])
    known = {
        bookie: Place(rack, rack + host) for bookie, (rack, host) in zip(names, drawn, strict=True)
    }
    return Places(known, names)


@given(RACKS, st.sampled_from([QUORUM, STRIPED, QuorumSpec(4, 3, 2)]))
def test_moves_are_found_and_end(drawn: list[tuple[str, str]], quorum: QuorumSpec) -> None:
    known = _places_of(drawn)
    ensemble = tuple(islice(known.known, quorum.ensemble_size))
    seen = {ensemble}
    while (member := misplaced_member(Holders(ensemble), quorum, known)) is not None:
        target = next(
            bookie
            for bookie in known.usable
            if bookie not in ensemble
            and is_better_place(Holders(ensemble), quorum, known, member, bookie)
        )
        ensemble = tuple(target if bookie == member else bookie for bookie in ensemble)
        assert ensemble not in seen
        seen.add(ensemble)
    for member in ensemble:
        for target in known.usable:
            assert target in ensemble or not is_better_place(
                Holders(ensemble), quorum, known, member, target
            )


def test_places_are_those_of_all_bookies_and_targets_are_writable_and_good() -> None:
    """A read-only or a draining bookie may be the member in another rack, and gets no copies."""
    registered = {
        BookieId(name): BookieRegistration(
            BookieId(name), "host", 1, location=f"/r{name}/h", writable=name != "b"
        )
        for name in "dcba"
    }
    found = places_of(registered, standings(draining="c"))
    assert set(found.known) == set(bookies("abcd"))
    assert found.known[BookieId("a")] == Place("/ra", "h")
    assert found.usable == bookies("ad")


def test_no_place_is_better_while_one_is_not_known() -> None:
    known = places("a1u b1v c2w")
    a, d = bookies("ad")
    assert not is_better_place(holders("abc"), QUORUM, known, a, d)
    assert not is_better_place(holders("abx"), QUORUM, places("a1u b1v c2w d3x"), a, d)
