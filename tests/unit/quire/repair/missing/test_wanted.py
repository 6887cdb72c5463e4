"""What a member of a closed ledger must hold, and what it lacks (9.16)."""

from collections.abc import AsyncIterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.reading.entry_ranges import Range, expected_ranges, merged, without
from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.ledgers.lost_entries import LostRange
from quire.repair.missing.wanted import lacking, members_of, wanted_ranges
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger

A, B, C, D = bookies("abcd")
STRIPED = QuorumSpec(3, 2, 2)
RANGES = st.lists(st.integers(0, 30), unique=True).map(lambda ids: merged((n, n) for n in ids))


async def pages(ranges: list[Range]) -> AsyncIterator[Range]:
    for each in ranges:
        yield each


@given(wanted=RANGES, held=RANGES)
async def test_what_is_wanted_and_not_held_is_lacking(
    wanted: list[Range], held: list[Range]
) -> None:
    found = [each async for each in lacking(wanted, pages(held))]
    assert found == without(wanted, held)


@given(
    quorum=st.sampled_from((STRIPED, QuorumSpec(3, 3, 2), QuorumSpec(3, 2, 2, stripe_entries=4))),
    lost=RANGES,
)
def test_a_member_must_hold_its_stripes_without_accepted_losses(
    quorum: QuorumSpec, lost: list[Range]
) -> None:
    ledger = closed_ledger("abc", "abd", "bcd", quorum=quorum)
    inside = [each for each in lost if each[1] <= 29]
    accepted = tuple(LostRange(EntryId(first), EntryId(last), 5) for first, last in inside)
    ledger = replace(ledger, lost=accepted)
    expected = expected_ranges(ledger, 29)
    for each in (A, B, C, D):
        assert merged(wanted_ranges(ledger, each)) == expected[each]
        starts = [fragment.first_entry_id for fragment in ledger.fragments[1:]]
        for first, last in wanted_ranges(ledger, each):
            assert not any(first < start <= last for start in starts), "each is in one fragment"


def test_nothing_is_wanted_of_ledgers_that_are_not_closed_and_of_bookies_that_are_no_members() -> (
    None
):
    assert list(wanted_ranges(open_ledger("abc", "abd"), A)) == []
    ledger = closed_ledger("abc")
    (fragment,) = ledger.fragments
    marked = replace(ledger, fragments=(replace(fragment, incoming=(D,)),))
    assert list(wanted_ranges(marked, D)) == []
    assert members_of(marked) == [A, B, C], "a mark changes nothing for the members"


def test_a_member_without_an_entry_is_left_out() -> None:
    ledger = replace(closed_ledger("abc", quorum=STRIPED), last_entry_id=EntryId(0), length=1)
    assert members_of(ledger) == [A, B]
    empty = replace(closed_ledger("abc"), last_entry_id=EntryId(-1), length=0)
    assert members_of(empty) == []
