"""Consecutive entries with the same copies, compared with counting entry by entry."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.copies import write_set
from metadata.ledgers.entry_ranges import merged
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from metadata.ledgers.lost_entries import LostRange
from quire.console.safety import (
    PARTS_PER_SLICE,
    STRIPES_MAX,
    Held,
    Part,
    Why,
    compare_copies,
    last_compared,
    parts,
)
from tests.support.sample_ledgers import IN_SYNC, bookies, closed_ledger, open_ledger

STRIPED = QuorumSpec(3, 2, 2, stripe_entries=4)
A, B, C = bookies("abc")
ALL = Held([(0, 99)], ENTRY_ID_MAX)


def held_of(entry_ids: set[int], through: int, *, is_up: bool) -> Held:
    return Held(merged([(entry_id, entry_id) for entry_id in entry_ids]), through, is_up=is_up)


HELD = st.builds(
    held_of,
    st.sets(st.integers(0, 35)),
    st.sampled_from([-1, 7, 15, ENTRY_ID_MAX]),
    is_up=st.booleans(),
)


def lacking_one_by_one(
    ledger: LedgerMetadata, held: dict[BookieId, Held], entry_id: int
) -> tuple[tuple[BookieId, Why], ...]:
    fragment = ledger.fragment_of(EntryId(entry_id))
    found = []
    for bookie in write_set(ledger.quorum_of(fragment), fragment, EntryId(entry_id)):
        answer = held.get(bookie, Held())
        if any(first <= entry_id <= last for first, last in answer.ranges):
            continue
        known = Why.MISSING if entry_id <= answer.through else Why.NOT_CHECKED
        found.append((bookie, known if answer.is_up else Why.DOWN))
    return tuple(found)


@given(
    held=st.dictionaries(st.sampled_from(bookies("abcde")), HELD),
    quorum=st.sampled_from([QuorumSpec(3, 3, 2), STRIPED, IN_SYNC]),
    span=st.tuples(st.integers(0, 29), st.integers(0, 29)).map(sorted),
    lost=st.sampled_from([(), (LostRange(EntryId(8), EntryId(11), 1),)]),
    confirmed=st.integers(-1, 29),
)
def test_each_entry_is_in_one_part(
    held: dict[BookieId, Held],
    quorum: QuorumSpec,
    span: list[int],
    lost: tuple[LostRange, ...],
    confirmed: int,
) -> None:
    ledger = replace(closed_ledger("abc", "bcd", "cde", quorum=quorum), lost=lost)
    found = list(parts(ledger, held, span[0], span[1], confirmed))
    of_entry: dict[int, Part] = {}
    for part in found:
        for entry_id in range(part.first, part.last + 1):
            assert entry_id not in of_entry
            of_entry[entry_id] = part
    assert sorted(of_entry) == list(range(span[0], span[1] + 1))
    for entry_id, part in of_entry.items():
        assert part.fragment_index == ledger.fragment_index_of(EntryId(entry_id))
        assert part.lacking == lacking_one_by_one(ledger, held, entry_id)
        assert part.is_confirmed == (entry_id <= confirmed)
        assert part.is_lost == (ledger.lost_range_of(entry_id) is not None)


def test_a_complete_ledger_is_one_part_for_each_fragment() -> None:
    held = dict.fromkeys(bookies("abcd"), ALL)
    found = list(parts(closed_ledger("abc", "bcd"), held, 0, 19, 19))
    assert [(part.first, part.last, part.copies) for part in found] == [(0, 9, 3), (10, 19, 3)]


def test_a_bookie_without_an_answer_is_not_taken_for_one_that_lacks_entries() -> None:
    held = {A: ALL, B: Held(problem="slow"), C: Held(is_up=False)}
    (part,) = parts(open_ledger("abc"), held, 0, 9, 9)
    assert part.lacking == ((B, Why.NOT_CHECKED), (C, Why.DOWN))
    assert (part.copies, part.unknown) == (1, 2)


def test_in_sync_mode_needs_the_minimum_of_members() -> None:
    (part,) = parts(closed_ledger("abc", quorum=IN_SYNC), {}, 0, 9, 9)
    assert part.ack_quorum == IN_SYNC.min_in_sync


@pytest.mark.parametrize(
    ("quorum", "compared"), [(QuorumSpec(3, 3, 2), 10**12), (STRIPED, 4 * STRIPES_MAX - 1)]
)
def test_stripes_limit_the_comparison(quorum: QuorumSpec, compared: int) -> None:
    assert last_compared(open_ledger("abc", quorum=quorum), 10**12) == compared


FRAGMENTS = 10 * PARTS_PER_SLICE
LAST = 10 * FRAGMENTS - 1


async def test_others_go_on_between_slices() -> None:
    ledger = closed_ledger(*["abc", "bcd"] * (FRAGMENTS // 2))
    held = dict.fromkeys(bookies("abcd"), Held([(0, LAST)], ENTRY_ID_MAX))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    compared = await compare_copies(ledger, held, LAST)
    other.cancel()
    assert turns >= FRAGMENTS // PARTS_PER_SLICE - 1
    assert list(compared.parts) == list(parts(ledger, held, 0, LAST, LAST))
    assert (compared.last, compared.compared_to, compared.confirmed) == (LAST, LAST, LAST)
