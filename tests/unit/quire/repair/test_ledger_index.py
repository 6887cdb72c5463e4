"""The index of all ledgers: what it knows of them, and the ranking of those that need repair."""

import random
from dataclasses import replace

from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from quire.repair.ledger_index import ClassTotal, LedgerIndex, RankedLedger, shape_of
from quire.repair.needs import RepairClass, class_of, holders_of
from tests.support.sample_ledgers import (
    IN_SYNC,
    QUORUM,
    bookies,
    closed_ledger,
    open_ledger,
    standings,
)

NOTHING = standings()


def index_of(*ledgers: LedgerMetadata) -> LedgerIndex:
    index = LedgerIndex()
    for ledger in ledgers:
        index.put(ledger)
    return index


def test_most_urgent_and_smallest_ledgers_are_first() -> None:
    index = index_of(
        closed_ledger("abc", ledger_id=1, length=500),
        closed_ledger("abd", ledger_id=2, length=900),
        closed_ledger("cde", ledger_id=3, length=10),
        closed_ledger("abe", ledger_id=4, length=100),
    )
    plan = index.plan(standings(gone="ad"), (), 10)
    assert plan.first == (
        RankedLedger(RepairClass.LAST_COPY, 900, LedgerId(2)),
        RankedLedger(RepairClass.SHORT_OF_WRITE_QUORUM, 10, LedgerId(3)),
        RankedLedger(RepairClass.SHORT_OF_WRITE_QUORUM, 100, LedgerId(4)),
        RankedLedger(RepairClass.SHORT_OF_WRITE_QUORUM, 500, LedgerId(1)),
    )
    assert plan.totals == {
        RepairClass.LAST_COPY: ClassTotal(1, 900),
        RepairClass.SHORT_OF_WRITE_QUORUM: ClassTotal(3, 610),
    }
    assert index.plan(standings(gone="ad"), (), 2).first == plan.first[:2]
    assert index.plan(NOTHING, (), 10).first == ()


def test_bytes_are_those_of_the_affected_fragments() -> None:
    index = index_of(closed_ledger("abc", "bcd", length=1_000))
    (ranked,) = index.plan(standings(gone="a"), (), 10).first
    assert ranked.byte_count == 500


def test_the_bytes_of_a_lost_stripe_count_twice_while_other_positions_are_repaired() -> None:
    striped = QuorumSpec(5, 2, 2)
    index = index_of(closed_ledger("abcde", "bcdef", length=1_000, quorum=striped))
    plan = index.plan(standings(gone="abd"), (), 10)
    assert plan.first == (RankedLedger(RepairClass.LAST_COPY, 1_000, LedgerId(7)),)
    assert plan.totals[RepairClass.LOST] == ClassTotal(1, 500)
    plan = index.plan(standings(gone="ab"), (), 10)
    assert plan.first == (RankedLedger(RepairClass.LAST_COPY, 500, LedgerId(7)),)
    assert plan.totals[RepairClass.LOST] == ClassTotal(1, 500)


def test_a_ledger_is_not_lost_while_its_bookies_are_only_away() -> None:
    """The worker of its other fragment finds out what is left."""
    two = QuorumSpec(2, 2, 2)
    index = index_of(
        closed_ledger("ab", ledger_id=1, length=10, quorum=two),
        closed_ledger("ab", "bc", ledger_id=2, length=10, quorum=two),
    )
    a, b = bookies("ab")
    plan = index.plan(NOTHING, (a, b), 10)
    assert plan.first == (RankedLedger(RepairClass.LAST_COPY, 5, LedgerId(2)),)
    assert plan.totals == {RepairClass.LAST_COPY: ClassTotal(1, 5)}
    plan = index.plan(standings(gone="a"), (b,), 10)
    assert plan.totals == {RepairClass.LAST_COPY: ClassTotal(2, 15)}


def test_a_ledger_that_is_lost_in_part_is_repaired_and_counts_as_lost_too() -> None:
    two = QuorumSpec(2, 2, 2)
    index = index_of(
        closed_ledger("ab", "bc", "cd", "cd", ledger_id=1, length=1_000, quorum=two),
        closed_ledger("ab", "cd", ledger_id=9, length=10, quorum=two),
    )
    plan = index.plan(standings(gone="ab"), (), 10)
    assert plan.first == (
        RankedLedger(RepairClass.LAST_COPY, 333, LedgerId(1)),
        RankedLedger(RepairClass.LOST, 5, LedgerId(9)),
    )
    assert plan.totals == {
        RepairClass.LAST_COPY: ClassTotal(1, 333),
        RepairClass.LOST: ClassTotal(2, 338),
    }
    damaged = {LedgerId(9): bookies("c")}
    plan = index.plan(standings(gone="ab"), (), 10, damaged)
    assert [ledger.repair_class for ledger in plan.first] == [RepairClass.LAST_COPY] * 2


def test_absent_bookies_count_only_for_ledgers_with_one_copy_left() -> None:
    index = index_of(closed_ledger("abc", ledger_id=1), closed_ledger("ade", ledger_id=2))
    assert index.plan(NOTHING, bookies("a"), 10).first == ()
    plan = index.plan(NOTHING, bookies("ab"), 10)
    assert [(ledger.repair_class, ledger.ledger_id) for ledger in plan.first] == [
        (RepairClass.LAST_COPY, 1)
    ]
    plan = index.plan(standings(gone="a"), bookies("d"), 10)
    assert [(ledger.repair_class, ledger.ledger_id) for ledger in plan.first] == [
        (RepairClass.LAST_COPY, 2),
        (RepairClass.SHORT_OF_WRITE_QUORUM, 1),
    ]


def test_damaged_copies_do_not_count() -> None:
    index = index_of(
        closed_ledger("abc", ledger_id=1),
        closed_ledger("abc", ledger_id=2),
        closed_ledger("abc", ledger_id=3),
        closed_ledger("ade", ledger_id=4),
    )
    damaged = {
        LedgerId(1): bookies("a"),
        LedgerId(2): bookies("ab"),
        LedgerId(3): bookies("abc"),
        LedgerId(9): bookies("a"),
    }
    plan = index.plan(NOTHING, (), 10, damaged)
    assert [(ledger.repair_class, ledger.ledger_id) for ledger in plan.first] == [
        (RepairClass.LAST_COPY, 2),
        (RepairClass.LAST_COPY, 3),  # the damaged entries may differ: a worker tries
        (RepairClass.SHORT_OF_WRITE_QUORUM, 1),
    ]
    assert plan.damaged == damaged
    plan = index.plan(standings(gone="bc"), (), 10, {LedgerId(1): bookies("a")})
    assert [ledger.repair_class for ledger in plan.first] == [RepairClass.LAST_COPY] * 3
    plan = index.plan(standings(gone="abc"), (), 10, {LedgerId(1): bookies("a")})
    assert [(ledger.repair_class, ledger.ledger_id) for ledger in plan.first] == [
        (RepairClass.SHORT_OF_WRITE_QUORUM, 4),
        *((RepairClass.LOST, each) for each in (1, 2, 3)),
    ]


def test_ledgers_that_are_set_aside_count_and_are_not_ranked() -> None:
    index = index_of(
        closed_ledger("abc", ledger_id=1),
        closed_ledger("abd", ledger_id=2),
        open_ledger("abc", ledger_id=3),
        open_ledger("abc", ledger_id=4),
    )
    aside = (LedgerId(1), LedgerId(3))
    plan = index.plan(standings(gone="a"), (), 10, set_aside=aside)
    assert [ledger.ledger_id for ledger in plan.first] == [2]
    assert plan.open_ledgers == (LedgerId(4),)
    assert plan.totals[RepairClass.SHORT_OF_WRITE_QUORUM].ledgers == 2


def test_copies_with_missing_entries_do_not_count() -> None:
    index = index_of(closed_ledger("abc", ledger_id=1), closed_ledger("abc", ledger_id=2))
    a, b = bookies("ab")
    missing = {LedgerId(1): {a: ((0, 1),)}, LedgerId(2): {a: ((0, 1),)}}
    plan = index.plan(NOTHING, (), 10, {LedgerId(2): (b,)}, missing)
    assert [(ledger.repair_class, ledger.ledger_id) for ledger in plan.first] == [
        (RepairClass.LAST_COPY, 2),
        (RepairClass.SHORT_OF_WRITE_QUORUM, 1),
    ]
    assert plan.missing == missing


def test_each_ledger_is_reported_once_when_it_is_seen_as_closed() -> None:
    closed: list[int] = []
    index = LedgerIndex(closed.append)
    for _ in range(2):
        index.put(open_ledger("abc", ledger_id=5))
        index.put(closed_ledger("abc", ledger_id=3))
        assert closed == [3], "as soon as it is seen, and not again"
    index.put(closed_ledger("abc", ledger_id=5))
    index.put(closed_ledger("abd", ledger_id=5))
    assert closed == [3, 5]


def test_closed_ledgers_are_found_from_the_highest_id_down() -> None:
    index = index_of(
        closed_ledger("abc", ledger_id=2),
        open_ledger("abc", ledger_id=5),
        closed_ledger("abc", ledger_id=9),
    )
    assert [index.closed_below(each) for each in (10, 9, 2)] == [9, 2, None]
    index = index_of(open_ledger("abc", ledger_id=2), open_ledger("abc", ledger_id=5))
    assert index.closed_below(9) is None
    index.put(closed_ledger("abc", ledger_id=0))
    assert index.closed_below(9) == 0


def test_ledgers_with_an_affected_open_fragment_are_listed() -> None:
    index = index_of(open_ledger("abc", ledger_id=1), open_ledger("abd", "bcd", ledger_id=2))
    plan = index.plan(standings(gone="a"), (), 10)
    assert plan.open_ledgers == (LedgerId(1),)
    assert [(ledger.ledger_id, ledger.byte_count) for ledger in plan.first] == [(2, 0)]
    assert list(index.open_ledgers()) == [1, 2]


def test_a_ledger_is_replaced_and_dropped() -> None:
    index = index_of(open_ledger("abc", ledger_id=5), closed_ledger("abc", ledger_id=3))
    index.put(closed_ledger("bcd", ledger_id=5))
    assert len(index) == 2
    assert list(index.open_ledgers()) == []
    assert index.count_naming(BookieId("a")) == 1
    index.drop(LedgerId(3))
    index.drop(LedgerId(4))
    assert index.count_naming(BookieId("a")) == 0
    assert index.known_between(LedgerId(0), LedgerId(9)) == [5]


def test_known_ids_are_found_from_one_to_another() -> None:
    index = index_of(*(closed_ledger("abc", ledger_id=each) for each in (3, 5, 6, 9)))
    first, last = LedgerId(5), LedgerId(6)
    assert index.known_between(first, last) == [5, 6]
    assert index.known_between(first, LedgerId(8)) == [5, 6]
    assert index.known_between(LedgerId(4), first) == [5]
    assert index.known_between(last, None) == [6, 9]


def test_a_mark_is_no_need_while_it_is_a_writers_or_the_ledger_lacks_copies() -> None:
    """The mark of an open in-sync ledger is its writer's (11.2); a need removes the others."""

    def marked(ledger: LedgerMetadata) -> LedgerMetadata:
        fragment = replace(ledger.fragments[0], incoming=bookies("x"))
        return replace(ledger, fragments=(fragment, *ledger.fragments[1:]))

    now = standings(gone="x")
    assert index_of(marked(open_ledger("abc", "abd", quorum=IN_SYNC))).plan(now, (), 9).first == ()
    (ranked,) = index_of(marked(closed_ledger("abc"))).plan(now, (), 9).first
    assert (ranked.repair_class, ranked.byte_count) == (RepairClass.DRAINING, 0)
    (ranked,) = index_of(marked(closed_ledger("abc"))).plan(standings(gone="xa"), (), 9).first
    assert ranked.repair_class is RepairClass.SHORT_OF_WRITE_QUORUM


def test_more_lost_entries_are_another_shape() -> None:
    ledger = closed_ledger("abc")
    shapes = [
        shape_of(ledger.with_lost(lost, 5, UpdateToken(bytes(16)))).lost
        for lost in ([(3, 3)], [(3, 5)], [(3, 5), (8, 8)])
    ]
    assert shapes == [1, 3, 4]


def test_incoming_and_given_up_bookies_are_named() -> None:
    ledger = closed_ledger("abc")
    marked = replace(ledger.fragments[0], incoming=bookies("x"))
    given_up = replace(ledger.fragments[0], first_entry_id=EntryId(10), ensemble=bookies("y"))
    index = index_of(replace(ledger, fragments=(marked,), given_up=(given_up,)))
    assert [index.count_naming(bookie) for bookie in bookies("axyz")] == [1, 1, 1, 0]
    assert [
        ranked_ledger.repair_class
        for ranked_ledger in index.plan(standings(draining="x"), (), 9).first
    ] == [RepairClass.DRAINING]
    assert index.plan(standings(draining="y"), (), 9).first == ()


def test_a_mark_on_a_bookie_that_drains_is_removed_unless_it_is_of_a_writer() -> None:
    for quorum, expected in ((QUORUM, [RepairClass.DRAINING]), (IN_SYNC, [])):
        ledger = open_ledger("abc", "abc", quorum=quorum)
        marked = replace(ledger.fragments[0], incoming=bookies("x"))
        index = index_of(replace(ledger, fragments=(marked, *ledger.fragments[1:])))
        plan = index.plan(standings(draining="x"), (), 9)
        assert [ranked_ledger.repair_class for ranked_ledger in plan.first] == expected


def test_the_end_of_an_open_ledger_is_as_urgent_with_a_mark() -> None:
    ledger = open_ledger("abc", "abd")
    marked = replace(ledger.fragments[0], incoming=bookies("x"))
    index = index_of(replace(ledger, fragments=(marked, *ledger.fragments[1:])))
    plan = index.plan(standings(gone="xd"), (), 9)
    assert (plan.first, plan.open_ledgers) == ((), (7,))


def test_bookies_stay_named_when_their_ledgers_change() -> None:
    index = index_of(closed_ledger("abc", ledger_id=1), open_ledger("cde", ledger_id=2))
    assert index.named == frozenset(bookies("abcde"))
    index.put(closed_ledger("cdf", ledger_id=2))
    index.drop(LedgerId(1))
    assert index.named == frozenset(bookies("abcdef"))


def test_bookies_of_fragments_that_only_the_writer_copies_are_named() -> None:
    """Otherwise they would be drained although an open in-sync ledger names them."""
    ledger = open_ledger("abc", "bcd", quorum=IN_SYNC)
    assert shape_of(ledger).others == bookies("abc")
    assert shape_of(closed_ledger("abc", "bcd")).others == (), "repair copies all of them"
    index = index_of(ledger)
    assert [index.count_naming(bookie) for bookie in bookies("abde")] == [1, 1, 1, 0]
    assert index.plan(standings(draining="a"), (), 9).open_ledgers == ()


def test_an_accepted_loss_is_a_change() -> None:
    """A job that it blocked is then tried again."""
    ledger = closed_ledger("abc")
    index = index_of(ledger)
    lost = ledger.with_lost([(3, 3)], 5, UpdateToken(bytes(16)))
    assert [index.put(metadata) for metadata in (ledger, lost, lost)] == [False, True, False]


def test_index_agrees_with_the_ledgers_one_by_one() -> None:
    rng = random.Random("ledger index")
    known: dict[int, LedgerMetadata] = {}
    index = LedgerIndex()
    for number in range(3_000):
        if number % 500 == 499:
            index.drop_unused_shapes()
        ledger_id = rng.randrange(400)
        if rng.random() < 0.2:
            known.pop(ledger_id, None)
            index.drop(LedgerId(ledger_id))
            continue
        ensembles = ["".join(rng.sample("abcdefg", 3)) for _ in range(rng.randint(1, 3))]
        make = closed_ledger if rng.random() < 0.7 else open_ledger
        quorum = IN_SYNC if rng.random() < 0.2 else QUORUM
        known[ledger_id] = make(*ensembles, ledger_id=ledger_id, quorum=quorum)
        index.put(known[ledger_id])
    now = standings(gone="ab", draining="c")
    wanted = {
        ledger_id: found
        for ledger_id, metadata in known.items()
        if (found := class_of(holders_of(metadata), metadata.quorum, now)) is not None
    }
    ranked = index.plan(now, (), 1_000).first
    assert {ledger.ledger_id: ledger.repair_class for ledger in ranked} == wanted
    assert list(ranked) == sorted(ranked)
    assert len(index) == len(known)
    naming = sum(metadata.names(BookieId("g")) for metadata in known.values())
    assert index.count_naming(BookieId("g")) == naming


def test_ensembles_in_another_order_are_one_shape() -> None:
    """Otherwise a large cluster has almost as many shapes as ledgers."""
    ledger, other = closed_ledger("abc", "bcd"), closed_ledger("cab", "dbc")
    assert shape_of(ledger) == shape_of(other)
    assert shape_of(open_ledger("abc")) == shape_of(open_ledger("bca"))
    striped = QuorumSpec(3, 2, 2)
    ledger, other = (closed_ledger(each, quorum=striped) for each in ("abc", "acb"))
    assert shape_of(ledger) != shape_of(other), "the order says which bookie holds what"
