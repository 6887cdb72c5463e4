"""The place of a bookie that has caught up with an in-sync ledger (rule 11.3)."""

from dataclasses import replace

import pytest

from ledger_client.protocol.membership import JOIN_FRAGMENTS_MAX, members_with
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, QuorumMode, QuorumSpec
from tests.support.metadata.samples import open_ledger

THREE_MIN_TWO = QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 2)


def names(text: str) -> tuple[BookieId, ...]:
    return tuple(map(BookieId, text))


def ledger(*members: str) -> LedgerMetadata:
    """Return an in-sync ledger with one fragment for each set of members."""
    fragments = [Fragment(EntryId(10 * i), names(each)) for i, each in enumerate(members)]
    return replace(open_ledger(7, *fragments), quorum=THREE_MIN_TWO)


@pytest.mark.parametrize(
    ("members", "parked", "in_sync", "after"),
    [
        (["abc", "ab"], "", "ab", "abd"),
        (["abc", "ab"], "b", "a", "abd"),
        (["abc"], "", "abc", None),
        (["abd"], "", "abd", None),
        (["abd"], "b", "ad", None),
        (["abc"], "b", "ac", "adc"),
        (["abc"], "b", "", None),
        (["abc", "abe", "abc", "aec"], "ec", "a", "adc"),
        (["abc", "abe", "abc", "ace"], "ce", "a", "acd"),
    ],
    ids=[
        "room",
        "room beside a parked member",
        "no place",
        "a member",
        "a member, and another is parked",
        "place of a parked member",
        "none is in sync",
        "place of the parked member that lacks most",
        "place of the parked member that lacks most, the last",
    ],
)
def test_a_bookie_takes_room_or_the_place_of_a_parked_member(
    members: list[str], parked: str, in_sync: str, after: str | None
) -> None:
    found = members_with(BookieId("d"), ledger(*members), names(parked), names(in_sync))
    assert found == (None if after is None else names(after))


@pytest.mark.parametrize(
    ("members", "in_sync", "after"),
    [
        (["abd", "abd", "abc"], "ab", None),
        (["abd", "abd", "abc"], "a", "abd"),
        (["abd", "abe", "abc"], "a", "abd"),
        (["abe", "abe", "abc"], "a", None),
        (["abe", "abd", "aed", "abc"], "a", "abd"),
        (["aef", "aed", "aed", "abc"], "a", "adc"),
        (["adf", "aed", "acd", "abc"], "a", "adc"),
    ],
    ids=[
        "enough are in sync",
        "too few are in sync",
        "one that lacks less",
        "one that lacks as much",
        "of two, the one that lacks more",
        "two that lack the same",
        "of two, the one that lacks more, the first",
    ],
)
def test_while_too_few_are_in_sync_it_takes_the_place_of_one_that_lacks_more(
    members: list[str], in_sync: str, after: str | None
) -> None:
    found = members_with(BookieId("d"), ledger(*members), [], names(in_sync))
    assert found == (None if after is None else names(after))


def test_no_bookie_joins_a_ledger_with_half_the_fragments_that_it_may_have() -> None:
    fragments = ["ab", "abc"] * (JOIN_FRAGMENTS_MAX // 2)
    full = ledger(*fragments[1:], "ab")
    assert len(full.fragments) == JOIN_FRAGMENTS_MAX
    assert members_with(BookieId("d"), full, [], names("ab")) is None
    almost = replace(full, fragments=(full.fragments[0], *full.fragments[2:]))
    assert members_with(BookieId("d"), almost, [], names("ab")) == names("abd")
