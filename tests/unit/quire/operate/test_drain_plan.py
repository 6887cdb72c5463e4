"""What draining a bookie would move, and what would block it."""

from dataclasses import replace

import pytest

from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, QuorumSpec
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle
from quire.operate.drain_plan import GIVEN_UP, NO_SOURCE, DrainPlan, TargetLoad, drain_targets
from tests.support.sample_ledgers import IN_SYNC, bookies, closed_ledger, open_ledger

A = BookieId("a")
STRIPED = QuorumSpec(4, 2, 2, stripe_entries=1)


def registered(names: str, capacity_bytes: int = 0) -> dict[BookieId, BookieRegistration]:
    return {
        bookie: BookieRegistration(
            bookie, "host", 1, capacity_bytes=capacity_bytes, free_bytes=capacity_bytes
        )
        for bookie in bookies(names)
    }


def planned(
    targets: str,
    *ledgers: LedgerMetadata,
    up: str = "abcdef",
    drained: str = "a",
    capacity_bytes: int = 0,
) -> DrainPlan:
    plan = DrainPlan(bookies(drained), bookies(targets), registered(up, capacity_bytes))
    for ledger in ledgers:
        plan.add(ledger)
    return plan


def test_targets_are_other_bookies_that_may_store() -> None:
    up = registered("abcdefghij")
    up[BookieId("b")] = replace(up[BookieId("b")], writable=False)
    others = [
        BookieLifecycle(lifecycle) for lifecycle in Lifecycle if lifecycle is not Lifecycle.ACTIVE
    ]
    states = dict(zip(bookies("cdefgj"), others, strict=True))
    states[BookieId("h")] = BookieLifecycle(Lifecycle.ACTIVE, 5, "undrain")
    assert drain_targets(bookies("ai"), up, states) == bookies("h")


def test_ledgers_that_name_the_bookie_are_counted() -> None:
    plan = planned(
        "bcd",
        closed_ledger("abc", ledger_id=1, length=1_000),
        closed_ledger("bcd", "abc", ledger_id=2, length=1_000),
        closed_ledger("bcd", ledger_id=3),
        open_ledger("abc", ledger_id=4),
    )
    assert (plan.ledgers, plan.open_ledgers, plan.size_bytes) == (3, 1, 1_500)
    assert not plan.blocked


def test_stripes_of_other_bookies_are_not_counted() -> None:
    striped = closed_ledger("abcd", quorum=STRIPED, length=1_000)
    assert planned("e", striped).size_bytes == 500


def test_an_incoming_bookie_holds_nothing_that_counts() -> None:
    ledger = closed_ledger("bcd")
    incoming = replace(ledger, fragments=(replace(ledger.fragments[0], incoming=(A,)),))
    plan = planned("e", incoming)
    assert (plan.ledgers, plan.size_bytes, plan.blocked.total()) == (1, 0, 0)


@pytest.mark.parametrize(
    ("targets", "up", "ledger", "why"),
    [
        ("bcd", "abcd", closed_ledger("abc"), None),
        ("bcd", "bcd", closed_ledger("abc"), None),
        ("bc", "abc", closed_ledger("abc"), "needs 3 other writable bookies, has 2"),
        ("bc", "abc", open_ledger("abc"), "needs 3 other writable bookies, has 2"),
        ("", "abc", closed_ledger("a", quorum=IN_SYNC), "needs 1 other writable bookies, has 0"),
        ("bc", "abc", closed_ledger("a", quorum=IN_SYNC), None),
        ("d", "d", closed_ledger("abc"), NO_SOURCE),
        ("e", "ce", closed_ledger("abcd", quorum=STRIPED), NO_SOURCE),
        ("e", "bde", closed_ledger("abcd", quorum=STRIPED), None),
        ("e", "e", replace(closed_ledger("bcd", "abc"), last_entry_id=EntryId(9)), None),
    ],
)
def test_what_blocks_a_drain(
    targets: str, up: str, ledger: LedgerMetadata, why: str | None
) -> None:
    plan = planned(targets, ledger, up=up)
    assert dict(plan.blocked) == ({} if why is None else {why: 1})


def test_given_up_entries_block_a_drain() -> None:
    ledger = replace(
        closed_ledger("bcd"),
        given_up=(Fragment(closed_ledger("b").fragments[0].first_entry_id, bookies("abc")),),
    )
    assert planned("e", ledger).blocked == {GIVEN_UP: 1}


def test_several_bookies_are_planned_together() -> None:
    """One by one, each would count on the others as targets."""
    ledger = closed_ledger("abc", length=3_000)
    plan = planned("cd", ledger, drained="ab")
    assert (plan.ledgers, plan.size_bytes) == (1, 6_000)
    assert plan.blocked == {"needs 3 other writable bookies, has 2": 1}
    assert not planned("cde", ledger, drained="ab").blocked


def test_copies_are_spread_over_the_targets_that_may_have_them() -> None:
    plan = planned("bcdef", closed_ledger("abc", length=3_000), capacity_bytes=100_000)
    assert plan.loads() == [
        TargetLoad(bookie, size, 100_000, passes_mark=False)
        for bookie, size in zip(bookies("bcdef"), (0, 0, 1_000, 1_000, 1_000), strict=True)
    ]


@pytest.mark.parametrize(("capacity_bytes", "passes_mark"), [(1_000, True), (1_100, False)])
def test_a_disk_that_would_pass_its_mark_is_named(capacity_bytes: int, passes_mark: bool) -> None:
    plan = planned("bcd", closed_ledger("abc", length=1_000), capacity_bytes=capacity_bytes)
    assert [load.passes_mark for load in plan.loads()] == [False, False, passes_mark]
