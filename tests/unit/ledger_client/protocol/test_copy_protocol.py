"""Decisions about a copied fragment, with concurrent changes by others (rules 9.1, 11.2)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bookie.wire.batch import BATCH_ENTRIES_MAX
from ledger_client.protocol.copy import (
    CopyPlan,
    CopyRefused,
    CopyState,
    IncomingMark,
    is_mark_unbroken,
    plan_copy,
    stray_marks,
)
from ledger_client.protocol.cutting import cut_batches
from metadata.ids import BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.copies import write_set_positions
from metadata.ledgers.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    QuorumMode,
    QuorumSpec,
)
from tests.support.sample_ledgers import ledger_of

THREE = QuorumSpec(3, 3, 2)
IN_SYNC = QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC)
TOKEN = UpdateToken(b"t" * 16)
D = BookieId("d")


def names(text: str) -> tuple[BookieId, ...]:
    return tuple(map(BookieId, text))


def plan(now: LedgerMetadata, first: int = 0, *, replaces: str | None = None) -> CopyPlan:
    found = plan_copy(now, EntryId(first), D, None if replaces is None else BookieId(replaces))
    assert isinstance(found, CopyPlan)
    return found


# -- planning --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "replaces", "after"),
    [("ab", None, "abd"), ("a", None, "ad"), ("ab", "b", "abd"), ("abc", "b", "adc")],
)
def test_in_sync_a_target_joins_while_there_is_room(
    members: str, replaces: str | None, after: str
) -> None:
    now = ledger_of((0, members), (10, "abd"), quorum=IN_SYNC)
    made = plan(now, replaces=replaces)
    assert made.ensemble_after == names(after)
    assert made.copies.quorum.write_quorum == len(members)


def test_in_quorum_mode_a_target_takes_over_a_position() -> None:
    assert plan(ledger_of((0, "abc"), (10, "abd")), replaces="a").ensemble_after == names("dbc")


def test_a_fragment_ends_before_the_next_one_or_with_the_ledger() -> None:
    now = ledger_of((0, "abc"), (10, "abc"))
    closed = now.with_closed(EntryId(14), 0, TOKEN)
    assert plan(now, replaces="a").copies.last_entry_id == 9
    assert plan(closed, 10, replaces="a").copies.last_entry_id == 14
    empty = plan(now.with_closed(EntryId(9), 0, TOKEN), 10, replaces="a")
    assert (empty.copies.last_entry_id, empty.entry_count, list(empty.ranges())) == (9, 0, [])


@pytest.mark.parametrize(
    ("now", "first", "replaces", "why"),
    [
        (ledger_of((0, "abc"), (10, "abc")), 5, "a", "no fragment starts"),
        (ledger_of((0, "abc"), (10, "abc")), 10, "a", "only once the ledger is closed"),
        (ledger_of((0, "abc"), (10, "abc")), 0, None, "name one of them"),
        (ledger_of((0, "abc"), (10, "abc")), 0, "x", "name one of them"),
        (ledger_of((0, "adc"), (10, "abc")), 0, "a", "a member already"),
        (ledger_of((0, "abc"), (10, "abc"), quorum=IN_SYNC), 0, None, "name one of them"),
    ],
)
def test_fragments_that_cannot_be_copied(
    now: LedgerMetadata, first: int, replaces: str | None, why: str
) -> None:
    refused = plan_copy(now, EntryId(first), D, None if replaces is None else BookieId(replaces))
    assert isinstance(refused, CopyRefused)
    assert why in refused.reason


@pytest.mark.parametrize(
    ("members", "quorum", "replaces"),
    [("abd", IN_SYNC, "b"), ("abd", THREE, None), ("abd", THREE, "c")],
)
def test_a_member_needs_no_copy(members: str, quorum: QuorumSpec, replaces: str | None) -> None:
    now = ledger_of((0, members), (10, "abc"), quorum=quorum)
    assert plan_copy(now, EntryId(0), D, None if replaces is None else BookieId(replaces)) is None


# -- what is stored --------------------------------------------------------------------------------


def test_the_target_is_marked_named_and_no_other_mark_is_touched() -> None:
    now = ledger_of((0, "abc"), (10, "abc"))
    others = replace(now.fragments[0], incoming=names("x"))
    now = now.with_fragment(0, others, TOKEN)
    made = plan(now, replaces="b")
    assert made.standing(now) is CopyState.UNMARKED
    marked = made.marked(now, TOKEN)
    assert made.standing(marked) is CopyState.MARKED
    assert marked.fragments[0] == Fragment(EntryId(0), names("abc"), names("xd"))
    named = made.named(marked, TOKEN)
    assert made.standing(named) is CopyState.NAMED
    assert named.fragments == (Fragment(EntryId(0), names("adc"), names("x")), now.fragments[1])
    off = made.unmarked(marked, TOKEN)
    assert off is not None
    assert off.fragments == now.fragments
    assert made.unmarked(named, TOKEN) is None
    assert named.update_token == marked.update_token == TOKEN


def test_changes_elsewhere_keep_the_standing() -> None:
    now = ledger_of((0, "abc"), (10, "abc"))
    made = plan(now, replaces="a")
    marked = made.marked(now, TOKEN)
    grown = marked.with_ensemble_change(EntryId(20), names("abe"), TOKEN)
    recovering = grown.with_recovery_begun(TOKEN)
    closed = recovering.with_recovered((), EntryId(25), 0, TOKEN)
    for stored in (grown, recovering, closed):
        assert made.standing(stored) is CopyState.MARKED
        assert made.named(stored, TOKEN).fragments[1:] == stored.fragments[1:]


def test_changes_of_the_fragment_end_the_copy() -> None:
    now = ledger_of((0, "abc"), (10, "abc"))
    made = plan(now, replaces="a")
    marked = made.marked(now, TOKEN)
    swapped = marked.with_fragment(0, replace(marked.fragments[0], ensemble=names("abe")), TOKEN)
    assert made.standing(swapped) is CopyState.CHANGED
    off = made.unmarked(swapped, TOKEN)
    assert off is not None
    assert off.fragments[0] == Fragment(EntryId(0), names("abe"))


def test_a_fragment_that_is_cut_or_gone_is_changed() -> None:
    closed = ledger_of((0, "abc"), (10, "abc")).with_closed(EntryId(14), 0, TOKEN)
    made = plan(closed, 10, replaces="a")
    assert made.standing(replace(closed, last_entry_id=EntryId(13))) is CopyState.CHANGED
    gone = replace(closed, fragments=closed.fragments[:1])
    assert made.standing(gone) is CopyState.CHANGED
    assert made.unmarked(gone, TOKEN) is None


def test_another_ledger_of_the_same_id_is_not_touched() -> None:
    now = ledger_of((0, "abc"), (10, "abc"))
    made = plan(now, replaces="a")
    other = replace(made.marked(now, TOKEN), creation_token=UpdateToken(b"o" * 16))
    assert made.standing(other) is CopyState.GONE
    assert made.unmarked(other, TOKEN) is None


def test_a_mark_may_have_been_removed_only_between_two_changes_of_a_closed_ledger() -> None:
    open_ = ledger_of((0, "abc"), (10, "abc"))
    recovering = open_.with_recovery_begun(TOKEN)
    closed = open_.with_closed(EntryId(14), 0, TOKEN)
    assert is_mark_unbroken(Version(3), closed, Version(3))
    assert is_mark_unbroken(Version(3), closed, Version(4))
    assert not is_mark_unbroken(Version(3), closed, Version(5))
    assert not is_mark_unbroken(Version(3), closed, Version(2))
    assert is_mark_unbroken(Version(3), open_, Version(50))
    assert is_mark_unbroken(Version(3), recovering, Version(50))


@pytest.mark.parametrize(
    ("last", "state"),
    [
        ("acd", CopyState.UNMARKED),
        ("cd", CopyState.UNMARKED),
        ("ac", CopyState.CHANGED),
        ("bd", CopyState.CHANGED),
        ("abd", CopyState.CHANGED),
    ],
    ids=["as planned", "another left", "target left", "replaced is back", "both are members"],
)
def test_in_sync_no_member_is_replaced_and_only_by_one(last: str, state: CopyState) -> None:
    """A bookie that became a member again may be the last one in sync (rule 11.2)."""
    made = plan(ledger_of((0, "abc"), (10, "acd"), quorum=IN_SYNC), replaces="b")
    now = ledger_of((0, "abc"), (10, "acd"), (20, last), quorum=IN_SYNC)
    assert made.standing(now) is state
    closed = now.with_closed(EntryId(30), 0, TOKEN)
    assert made.standing(closed) is CopyState.UNMARKED, "no member is in sync any more"


def test_a_target_that_is_added_or_in_quorum_mode_takes_nothing_from_a_member() -> None:
    added = plan(ledger_of((0, "ab"), (10, "abd"), quorum=IN_SYNC))
    now = ledger_of((0, "ab"), (10, "abd"), (20, "ab"), quorum=IN_SYNC)
    assert added.standing(now) is CopyState.UNMARKED
    replacing = plan(ledger_of((0, "abc"), (10, "abe")), replaces="c")
    assert replacing.standing(ledger_of((0, "abc"), (10, "abc"))) is CopyState.UNMARKED


def test_marks_of_bookies_that_are_no_members_are_stray() -> None:
    now = ledger_of((0, "ab"), (10, "abc"), (20, "abd"), quorum=IN_SYNC)
    for index, incoming in ((0, "dx"), (1, "y")):
        marked = replace(now.fragments[index], incoming=names(incoming))
        now = now.with_fragment(index, marked, TOKEN)
    found = stray_marks(now)
    places = [(mark.first_entry_id, mark.target) for mark in found]
    assert places == [(0, "x"), (10, "y")]
    for mark in found:
        left = mark.removed(now, TOKEN)
        assert left is not None
        assert stray_marks(left) == [
            incoming_mark for incoming_mark in found if incoming_mark != mark
        ]
        assert left.fragments[0].incoming == (names("d") if mark.target == "x" else names("dx"))
    assert stray_marks(now.with_recovery_begun(TOKEN)) == []
    mark = IncomingMark(now.creation_token, EntryId(0), D)
    assert not mark.is_stray(now)


# -- which entries ---------------------------------------------------------------------------------


@given(
    quorum=st.sampled_from([QuorumSpec(3, 2, 2, 2), QuorumSpec(4, 2, 2), THREE]),
    last=st.integers(-1, 20),
    lost=st.sets(st.integers(0, 20)),
    position=st.integers(0, 2),
)
@example(quorum=QuorumSpec(3, 2, 2, 2), last=0, lost=set(), position=2)
def test_lost_entries_are_not_copied(
    quorum: QuorumSpec, last: int, lost: set[int], position: int
) -> None:
    """Rules 9.7 and 9.9."""
    members = "abce"[: quorum.ensemble_size]
    closed = ledger_of((0, members), quorum=quorum).with_closed(EntryId(last), 0, TOKEN)
    gone = sorted(each for each in lost if each <= last)
    closed = closed.with_lost([(each, each) for each in gone], 5, TOKEN)
    wanted = {
        number
        for number in range(last + 1)
        if position in write_set_positions(quorum, EntryId(number)) and number not in lost
    }
    made = plan(closed, replaces=members[position])
    assert {e for low, high in made.ranges() for e in range(low, high + 1)} == wanted
    assert made.entry_count == len(wanted)


@pytest.mark.parametrize("replaces", [None, "b"])
def test_the_target_gets_a_whole_fragment_at_once_where_each_member_holds_it(
    replaces: str | None,
) -> None:
    members = "ab" if replaces is None else "abc"
    stripes = replace(IN_SYNC, stripe_entries=4)
    made = plan(
        ledger_of((0, "abc"), (5, members), (25, "abd"), quorum=stripes), 5, replaces=replaces
    )
    assert list(made.ranges()) == [(5, 24)]
    assert made.entry_count == 20


@given(
    st.integers(1, 9),
    st.integers(0, 50),
    st.lists(st.integers(0, 40), max_size=60),
    st.integers(1, 60),
)
def test_batches_contain_all_entries_in_order_within_their_limits(
    stripe: int, first: int, lengths: Sequence[int], bytes_max: int
) -> None:
    quorum = QuorumSpec(3, 3, 2, stripe)
    batches = list(cut_batches(quorum, EntryId(first), lengths, bytes_max))
    held = [start + number for start, count in batches for number in range(count)]
    assert held == list(range(first, first + len(lengths)))
    for start, count in batches:
        assert start // stripe == (start + count - 1) // stripe
        size = sum(lengths[start - first : start - first + count])
        assert count == 1 or size <= bytes_max


def test_a_batch_has_at_most_the_byte_limit() -> None:
    assert list(cut_batches(THREE, EntryId(0), [4, 6, 1], 10)) == [(0, 2), (2, 1)]
    assert list(cut_batches(THREE, EntryId(0), [11, 0, 10, 0], 10)) == [(0, 1), (1, 3)]


def test_a_batch_keeps_the_entry_limit() -> None:
    quorum = QuorumSpec(3, 3, 2, 3 * BATCH_ENTRIES_MAX)
    found = list(cut_batches(quorum, EntryId(0), [0] * (BATCH_ENTRIES_MAX + 1), 10))
    assert found == [(0, BATCH_ENTRIES_MAX), (BATCH_ENTRIES_MAX, 1)]
