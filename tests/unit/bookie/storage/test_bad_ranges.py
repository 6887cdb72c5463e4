"""Damaged ranges: joined, cut and limited; compared with a set of entries (rule 9.12)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.reading import BadRanges
from metadata.ids import EntryId, LedgerId
from metadata.repair.scrub import BAD_RANGES_MAX, BadRange

steps = st.lists(
    st.tuples(st.booleans(), st.integers(1, 2), st.integers(0, 20), st.integers(0, 4)), max_size=30
)


def bad_range(ledger_id: int, first: int, last: int) -> BadRange:
    return BadRange(LedgerId(ledger_id), EntryId(first), EntryId(last))


@given(steps)
def test_ranges_hold_what_was_noted_and_not_cleared(
    done: list[tuple[bool, int, int, int]],
) -> None:
    bad, entries, changes = BadRanges(), dict[tuple[int, int], None](), list[int]()
    bad.on_change(lambda: changes.append(0))
    for is_note, ledger_id, first, more in done:
        before = bad.report()
        touched = {(ledger_id, number): None for number in range(first, first + more + 1)}
        assert bad.overlap(ledger_id, first, first + more) == any(e in entries for e in touched)
        changes.clear()
        if is_note:
            bad.note(ledger_id, first, first + more)
            entries |= touched
        else:
            bad.clear(ledger_id, first, first + more)
            entries = {entry: None for entry in entries if entry not in touched}
        assert len(changes) == (bad.report() != before)
    report = bad.report()
    assert [(r[0], e) for r in report for e in range(r[1], r[2] + 1)] == sorted(entries)
    assert (bad.range_count, bad.entry_count) == (len(report), len(entries))
    for one, other in pairwise(report):
        assert one.ledger_id != other.ledger_id or one.last_entry_id + 1 < other.first_entry_id
    again = BadRanges()
    again.restore(report)
    assert again.report() == report


def test_the_end_of_a_range() -> None:
    bad = BadRanges()
    bad.note(1, 3, 5)
    assert [bad.last_of(1, each) for each in (2, 3, 5, 6)] == [None, 5, 5, None]
    assert bad.last_of(2, 3) is None
    bad.drop(1)
    bad.drop(1)
    assert bad.report() == ()


def test_ranges_are_limited() -> None:
    bad = BadRanges()
    for number in range(BAD_RANGES_MAX + 5):
        bad.note(1, 10 * number, 10 * number + 2)
    assert bad.range_count == BAD_RANGES_MAX
    bad.note(1, 3, 3)
    assert bad.report()[0] == bad_range(1, 0, 3), "a known range may grow"
    bad.clear(1, 1, 1)
    assert len(bad.report()) == BAD_RANGES_MAX, "a report is limited, also after a cut"
