"""Needs of one ledger, and the urgency of its repair."""

import random
from dataclasses import replace

import pytest

from metadata.ids import EntryId, UpdateToken
from metadata.ledgers.copies import Holders
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from quire.repair.needs import (
    Cause,
    Need,
    RepairClass,
    class_of,
    class_without_copies,
    holders_of,
    lost_members,
    needs_of,
)
from tests.support.sample_ledgers import (
    IN_SYNC,
    QUORUM,
    bookies,
    closed_ledger,
    open_ledger,
    standings,
)


def holders(*ensembles: str) -> tuple[Holders, ...]:
    return tuple(Holders(bookies(ensemble)) for ensemble in ensembles)


def test_each_closed_fragment_needs_a_bookie_for_each_that_is_gone() -> None:
    ledger = closed_ledger("abc", "abd", "bcd")
    assert needs_of(ledger, standings(gone="a", draining="d")) == [
        Need(EntryId(0), bookies("a")[0], Cause.GONE),
        Need(EntryId(10), bookies("a")[0], Cause.GONE),
        Need(EntryId(10), bookies("d")[0], Cause.DRAINING),
        Need(EntryId(20), bookies("d")[0], Cause.DRAINING),
    ]
    assert needs_of(ledger, standings()) == []


def test_the_open_fragment_has_no_needs() -> None:
    assert needs_of(open_ledger("abc"), standings(gone="a")) == []
    assert needs_of(open_ledger("abc", "abd"), standings(gone="a")) == [
        Need(EntryId(0), bookies("a")[0], Cause.GONE)
    ]


def test_an_open_in_sync_ledger_is_left_to_its_writer() -> None:
    assert needs_of(open_ledger("abc", "bcd", quorum=IN_SYNC), standings(gone="a")) == []
    assert needs_of(open_ledger("ab", "bcd", quorum=IN_SYNC), standings()) == []


def test_a_short_in_sync_fragment_needs_members() -> None:
    ledger = closed_ledger("abc", "b", quorum=IN_SYNC)
    assert needs_of(ledger, standings()) == [Need(EntryId(10), None, Cause.SHORT)] * 2


def test_a_short_in_sync_fragment_without_entries_needs_no_members() -> None:
    """The writer lost a member after the last entry. Only a member that is gone is replaced."""
    ledger = replace(closed_ledger("abc", "bc", quorum=IN_SYNC), last_entry_id=EntryId(9))
    assert needs_of(ledger, standings()) == []
    assert class_of(holders_of(ledger), ledger.quorum, standings()) is None
    assert needs_of(ledger, standings(gone="c"))[-1] == Need(
        EntryId(10), bookies("c")[0], Cause.GONE
    )


@pytest.mark.parametrize(
    ("gone", "draining", "urgency"),
    [
        ("", "", None),
        ("", "a", RepairClass.DRAINING),
        ("", "abc", RepairClass.DRAINING),
        ("a", "", RepairClass.SHORT_OF_WRITE_QUORUM),
        ("a", "b", RepairClass.SHORT_OF_WRITE_QUORUM),
        ("ab", "", RepairClass.LAST_COPY),
        ("ab", "c", RepairClass.LAST_COPY),
        ("abc", "", RepairClass.LOST),
        ("d", "e", None),
    ],
)
def test_urgency_of_a_quorum_ledger(gone: str, draining: str, urgency: RepairClass | None) -> None:
    assert class_of(holders("abc"), QUORUM, standings(gone, draining)) is urgency


@pytest.mark.parametrize(
    ("unproven", "gone", "draining", "urgency"),
    [
        ("a", "", "", RepairClass.SHORT_OF_WRITE_QUORUM),
        ("ab", "", "", RepairClass.LAST_COPY),
        ("a", "b", "c", RepairClass.LAST_COPY),
        ("abc", "", "", RepairClass.LAST_COPY),
        ("a", "bc", "", RepairClass.LAST_COPY),
        ("d", "abc", "", RepairClass.LOST),
    ],
)
def test_copies_of_a_bookie_in_limbo_do_not_count_and_are_not_lost(
    unproven: str, gone: str, draining: str, urgency: RepairClass
) -> None:
    """Rule 9.13."""
    assert class_of(holders("abc"), QUORUM, standings(gone, draining, unproven)) is urgency


def test_a_position_of_a_bookie_in_limbo_is_replaced_even_without_entries() -> None:
    empty = (Holders(bookies("abc"), (0,)),)
    assert class_of(empty, QUORUM, standings(unproven="a")) is RepairClass.SHORT_OF_WRITE_QUORUM
    assert needs_of(closed_ledger("abc"), standings(unproven="a", gone="b")) == [
        Need(EntryId(0), bookies("a")[0], Cause.UNPROVEN),
        Need(EntryId(0), bookies("b")[0], Cause.GONE),
    ]


def test_striped_entries_on_bookies_in_limbo_alone_are_not_lost() -> None:
    striped = QuorumSpec(4, 2, 2)
    found = class_of(holders("abcd"), striped, standings(gone="d", unproven="ab"))
    assert found is RepairClass.LAST_COPY
    now = standings(gone="cd", unproven="ab")
    assert class_of(holders("abcd"), striped, now) is RepairClass.LAST_COPY
    assert lost_members(holders("abcd")[0], striped, now) == frozenset(bookies("cd"))


def test_the_worst_fragment_decides() -> None:
    ensembles = holders("abc", "ade", "bde")
    assert class_of(ensembles, QUORUM, standings(gone="d")) is RepairClass.SHORT_OF_WRITE_QUORUM
    assert class_of(ensembles, QUORUM, standings(gone="de")) is RepairClass.LAST_COPY
    assert class_of(ensembles, QUORUM, standings(gone="bde")) is RepairClass.LAST_COPY
    assert class_of(ensembles[2:], QUORUM, standings(gone="bde")) is RepairClass.LOST
    assert class_of(ensembles, QUORUM, standings(gone="abcde")) is RepairClass.LOST


def test_bad_copies_do_not_count_and_make_no_fragment_lost() -> None:
    ensembles = holders("ab", "cd")
    quorum = QuorumSpec(2, 2, 2)
    a, b, c, _ = bookies("abcd")
    for gone, bad, urgency in (
        ("", (), None),
        ("", (a,), RepairClass.LAST_COPY),
        ("", (a, b), RepairClass.LAST_COPY),
        ("ab", (), RepairClass.LOST),
        ("ab", (a,), RepairClass.LOST),
        ("ab", (c,), RepairClass.LAST_COPY),
        ("a", (b,), RepairClass.LAST_COPY),
    ):
        found = class_without_copies(ensembles, quorum, standings(gone=gone), bad)
        assert found is urgency, (gone, bad)


def test_only_members_that_are_all_gone_have_lost_entries() -> None:
    (held,) = holders("ab")
    quorum = QuorumSpec(2, 2, 2)
    assert lost_members(held, quorum, standings(gone="ab")) == frozenset(bookies("ab"))
    assert lost_members(held, quorum, standings(gone="a", unproven="b")) == frozenset()
    assert lost_members(held, quorum, standings(gone="a", draining="b")) == frozenset()
    empty = Holders(bookies("ab"), (0,))
    assert lost_members(empty, quorum, standings(gone="ab")) == frozenset()


def test_needs_of_fragments_without_a_copy_are_lost() -> None:
    ledger = closed_ledger("ab", "bc", "cd", quorum=QuorumSpec(2, 2, 2))
    found = needs_of(ledger, standings(gone="abc"))
    assert [(need.first_entry_id, need.is_lost) for need in found] == [
        (0, True),
        (0, True),
        (10, True),
        (10, True),
        (20, False),
    ]


def test_a_short_in_sync_fragment_whose_members_are_gone_is_lost() -> None:
    found = needs_of(closed_ledger("a", quorum=IN_SYNC), standings(gone="a"))
    assert [(need.cause, need.is_lost) for need in found] == [
        (Cause.GONE, True),
        (Cause.SHORT, True),
        (Cause.SHORT, True),
    ]


@pytest.mark.parametrize(
    ("gone", "draining", "unproven", "urgency", "met", "lost"),
    [
        ("ab", "", "", RepairClass.LOST, "", "ab"),
        ("abd", "", "", RepairClass.LAST_COPY, "d", "ab"),
        ("ab", "d", "", RepairClass.DRAINING, "d", "ab"),
        ("ab", "c", "", RepairClass.DRAINING, "c", "ab"),
        ("abc", "", "", RepairClass.LOST, "", "abc"),
        ("ab", "", "c", RepairClass.LAST_COPY, "c", "ab"),
        ("abe", "", "d", RepairClass.LAST_COPY, "d", "abe"),
        ("abcde", "", "", RepairClass.LOST, "", "abcde"),
    ],
)
def test_a_lost_stripe_stops_only_the_positions_that_hold_it(
    gone: str, draining: str, unproven: str, urgency: RepairClass, met: str, lost: str
) -> None:
    """Each bookie of five holds two of the five write sets."""
    ledger = closed_ledger("abcde", quorum=QuorumSpec(5, 2, 2, stripe_entries=1))
    now = standings(gone, draining, unproven)
    assert class_of(holders_of(ledger), ledger.quorum, now) is urgency
    found = needs_of(ledger, now)
    assert [need.replaces for need in found if not need.is_lost] == list(bookies(met))
    assert [need.replaces for need in found if need.is_lost] == list(bookies(lost))


def test_a_lost_stripe_stops_no_position_without_entries() -> None:
    """Entry 0 is on a and b, entry 1 on b and c; the ledger has no others."""
    ledger = closed_ledger("abcde", quorum=QuorumSpec(5, 2, 2, stripe_entries=1))
    ledger = replace(ledger, last_entry_id=EntryId(1))
    now = standings(gone="bce")
    assert [need.is_lost for need in needs_of(ledger, now)] == [True, True, False]
    found = class_of(holders_of(ledger), ledger.quorum, now)
    assert found is RepairClass.SHORT_OF_WRITE_QUORUM


def test_damage_of_one_write_set_is_urgent_beside_a_lost_one() -> None:
    quorum = QuorumSpec(5, 2, 2)
    c, d = bookies("cd")
    for gone, bad, urgency in (
        ("ab", (d,), RepairClass.LAST_COPY),
        ("ab", (c,), RepairClass.LAST_COPY),
        ("abd", (c,), RepairClass.LAST_COPY),
        ("ab", (), RepairClass.LOST),
    ):
        found = class_without_copies(holders("abcde"), quorum, standings(gone=gone), bad)
        assert found is urgency, (gone, bad)


def test_fewer_copies_than_the_ack_quorum() -> None:
    quorum = QuorumSpec(4, 4, 3)
    found = class_of(holders("abcd"), quorum, standings(gone="ab"))
    assert found is RepairClass.SHORT_OF_ACK_QUORUM


def test_a_striped_fragment_is_as_urgent_as_its_worst_write_set() -> None:
    quorum = QuorumSpec(5, 2, 2)
    ensembles = holders("abcde")
    assert class_of(ensembles, quorum, standings(gone="a")) is RepairClass.LAST_COPY
    assert class_of(ensembles, quorum, standings(gone="ac")) is RepairClass.LAST_COPY
    assert class_of(ensembles, quorum, standings(gone="ab")) is RepairClass.LOST


def test_a_short_in_sync_fragment_is_urgent_by_its_members() -> None:
    assert class_of(holders("ab"), IN_SYNC, standings()) is RepairClass.SHORT_OF_WRITE_QUORUM
    assert class_of(holders("a"), IN_SYNC, standings()) is RepairClass.LAST_COPY
    assert class_of(holders("abc"), IN_SYNC, standings(gone="a")) is not None


def test_a_ledger_with_one_copy_by_design_is_not_urgent() -> None:
    quorum = QuorumSpec(1, 1, 1)
    assert class_of(holders("a"), quorum, standings()) is None
    assert class_of(holders("a"), quorum, standings(draining="a")) is RepairClass.DRAINING
    assert class_of(holders("a"), quorum, standings(gone="a")) is RepairClass.LOST


def lost_ledger(*found: tuple[int, int], quorum: QuorumSpec = QUORUM) -> LedgerMetadata:
    names = "abcd"[: quorum.ensemble_size]
    return closed_ledger(names, "xyzw"[: len(names)], quorum=quorum).with_lost(
        found, 5, UpdateToken(bytes(16))
    )


def test_accepted_losses_do_not_count() -> None:
    gone = standings(gone="abc")
    assert class_of(holders_of(lost_ledger((0, 8))), QUORUM, gone) is RepairClass.LOST
    ledger = lost_ledger((0, 9))
    assert class_of(holders_of(ledger), QUORUM, gone) is RepairClass.SHORT_OF_WRITE_QUORUM
    assert class_of(holders_of(ledger), QUORUM, standings()) is None
    assert [need.replaces for need in needs_of(ledger, gone)] == list(bookies("abc"))
    assert class_of(holders_of(ledger), QUORUM, standings(gone="xyz")) is RepairClass.LOST


def test_an_entry_that_is_left_is_on_each_member_that_holds_all() -> None:
    """The stripes of the accepted losses are not those of the copies."""
    ledger = lost_ledger((0, 0), (2, 9), quorum=QuorumSpec(3, 3, 2, stripe_entries=1))
    assert [holder.empty_starts for holder in holders_of(ledger)] == [(), ()]
    assert class_of(holders_of(ledger), QUORUM, standings(gone="abc")) is RepairClass.LOST


def test_a_fragment_without_entries_is_not_lost() -> None:
    ledger = replace(closed_ledger("abc"), last_entry_id=EntryId(-1), length=0)
    found = class_of(holders_of(ledger), QUORUM, standings(gone="abc"))
    assert found is RepairClass.SHORT_OF_WRITE_QUORUM


@pytest.mark.parametrize("seed", range(30))
def test_the_empty_write_sets_are_those_without_an_entry_that_is_left(seed: int) -> None:
    rng = random.Random(seed)
    quorum = QuorumSpec(4, 2, 2, stripe_entries=rng.randint(1, 3))
    bounds = sorted(rng.sample(range(20), 2 * rng.randint(1, 4)))
    found = list(zip(bounds[::2], bounds[1::2], strict=True))
    ledger = lost_ledger(*found, quorum=quorum)
    lost = {e for first, last in found for e in range(first, last + 1)}
    for number, each in enumerate(holders_of(ledger)):
        left = set(range(10 * number, 10 * number + 10)) - lost
        used = {e // quorum.stripe_entries % 4 for e in left}
        assert set(each.empty_starts) == set(range(4)) - used
