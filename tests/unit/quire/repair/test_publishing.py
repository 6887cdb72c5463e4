"""Which jobs are published, kept and removed."""

from dataclasses import replace

from metadata.ids import BookieId, LedgerId
from metadata.repair.jobs import Job, JobName, JobState
from quire.repair.ledger_index import RankedLedger, RepairPlan
from quire.repair.needs import RepairClass
from quire.repair.publishing import REASONS, REQUESTED, TURN_MS, Publication, publication

DRAINING, SHORT, LAST = (
    RepairClass.DRAINING,
    RepairClass.SHORT_OF_WRITE_QUORUM,
    RepairClass.LAST_COPY,
)


def plan(*ranked: tuple[RepairClass, int, int], open_ledgers: tuple[int, ...] = ()) -> RepairPlan:
    first = tuple(RankedLedger(urgency, size, LedgerId(each)) for urgency, size, each in ranked)
    return RepairPlan(first, {}, tuple(map(LedgerId, open_ledgers)))


def job(urgency: RepairClass, size: int, ledger_id: int, *reasons: str) -> Job:
    return Job(JobName(urgency, size, LedgerId(ledger_id)), reasons or ("why",), 5)


def changes(wanted: RepairPlan, *published: Job, limit: int = 10) -> Publication:
    return publication(wanted, SHORT, {each.name: each for each in published}, 9, limit)


def ids(publish: tuple[Job, ...]) -> list[int]:
    return [each.ledger_id for each in publish]


def test_ledgers_without_a_job_get_one() -> None:
    found = changes(plan((LAST, 10, 1), (SHORT, 5, 2)), job(SHORT, 5, 2))
    assert found.remove == ()
    (made,) = found.publish
    assert (made.name, made.state, made.since_ms) == (
        JobName(LAST, 10, LedgerId(1)),
        JobState.QUEUED,
        9,
    )
    assert made.blocked_reason == ""


def test_a_job_whose_ledger_needs_nothing_is_removed() -> None:
    old = job(SHORT, 5, 2)
    assert changes(plan(), old) == Publication((old.name,), ())


def test_a_requested_job_stays() -> None:
    assert changes(plan(), job(LAST, 0, 2, REQUESTED)) == Publication((), ())


def test_requested_jobs_take_places_of_the_others() -> None:
    requested = [job(LAST, 0, each, REQUESTED) for each in (7, 8)]
    wanted = plan((LAST, 10, 1), (SHORT, 5, 2))
    for limit, published in ((4, [1, 2]), (3, [1]), (2, []), (1, [])):
        found = changes(wanted, *requested, limit=limit)
        assert (found.remove, ids(found.publish)) == ((), published)


def test_a_job_moves_when_its_urgency_changes_and_not_with_its_size() -> None:
    old = job(SHORT, 5, 2)
    assert changes(plan((SHORT, 6, 2)), old) == Publication((), ())
    found = changes(plan((LAST, 5, 2)), old)
    assert found.remove == (old.name,)
    assert [each.name.urgency for each in found.publish] == [LAST]


def test_a_ledger_has_one_job() -> None:
    old, requested = job(SHORT, 5, 2), job(LAST, 0, 2, REQUESTED)
    for published in ((requested, old), (old, requested)):
        found = changes(plan((SHORT, 5, 2)), *published)
        assert found == Publication((old.name,), ()), "what an operator requested stays"


def test_the_most_urgent_ledgers_are_published_up_to_the_limit() -> None:
    wanted = plan((DRAINING, 1, 1), (SHORT, 9, 2), (LAST, 9, 3), (SHORT, 1, 4))
    assert ids(changes(wanted, limit=3).publish) == [3, 4, 2]
    assert ids(changes(wanted, job(SHORT, 9, 2), limit=3).publish) == [3, 4]
    assert ids(changes(wanted, job(SHORT, 9, 2), limit=1).publish) == [3]


def test_an_urgent_ledger_gets_the_place_of_another() -> None:
    """So many open ledgers have jobs that there is no place left."""
    published = [job(DRAINING, 0, number) for number in range(10, 14)]
    wanted = plan((LAST, 9, 1), (DRAINING, 9, 2), open_ledgers=tuple(range(10, 14)))
    found = publication(wanted, DRAINING, {each.name: each for each in published}, 9, 4)
    assert ids(found.publish) == [1, 2]
    assert [job_name.ledger_id for job_name in found.remove] == [12, 13]


def test_open_ledgers_get_half_of_the_places() -> None:
    """Most of their writers live, and need no job."""
    found = changes(plan((SHORT, 7, 1), (SHORT, 8, 2), open_ledgers=(3, 4, 5)), limit=4)
    assert ids(found.publish) == [3, 4, 1, 2]


def test_open_ledgers_take_turns_if_there_are_too_many() -> None:
    """Those whose writers live and wait must not keep one out whose writer is missing."""
    wanted = plan(open_ledgers=tuple(range(1, 6)))
    turns = [ids(publication(wanted, SHORT, {}, turn * TURN_MS, 4).publish) for turn in range(5)]
    assert turns == [[1, 2], [3, 4], [1, 5], [2, 3], [4, 5]]
    last = [job(SHORT, 0, each) for each in (1, 2)]
    found = publication(wanted, SHORT, {each.name: each for each in last}, TURN_MS, 4)
    assert [job_name.ledger_id for job_name in found.remove] == [1, 2]
    found = publication(wanted, SHORT, {}, TURN_MS, 10)
    assert ids(found.publish) == [1, 2, 3, 4, 5]


def test_open_ledgers_are_published_once() -> None:
    found = changes(plan((DRAINING, 7, 1), open_ledgers=(1, 2)))
    assert [each.name for each in found.publish] == [
        JobName(SHORT, 0, LedgerId(2)),
        JobName(DRAINING, 7, LedgerId(1)),
    ]


def test_a_ledger_without_a_good_copy_is_published_as_lost() -> None:
    (made,) = changes(plan((RepairClass.LOST, 7, 1))).publish
    assert made.state is JobState.LOST
    assert "bring one back" in made.blocked_reason


def test_an_open_ledger_that_is_lost_in_part_gets_a_job() -> None:
    """Its end can be found all the same. Other ledgers keep their class."""
    wanted = plan((LAST, 7, 1), (RepairClass.LOST, 7, 2), open_ledgers=(1, 2))
    made = {each.ledger_id: each for each in changes(wanted).publish}
    assert (made[LedgerId(1)].name.urgency, made[LedgerId(1)].state) == (LAST, JobState.QUEUED)
    assert (made[LedgerId(2)].name.urgency, made[LedgerId(2)].state) == (SHORT, JobState.QUEUED)


def test_the_job_of_a_damaged_ledger_names_the_bookies() -> None:
    damaged = {LedgerId(1): (BookieId("b"), BookieId("a"))}
    found = changes(replace(plan((SHORT, 0, 1), (SHORT, 0, 2)), damaged=damaged))
    assert [each.reasons for each in found.publish] == [
        ("some entries are damaged on a, b",),
        (REASONS[SHORT],),
    ]


def test_the_job_of_a_ledger_with_missing_entries_names_them() -> None:
    a, b = BookieId("a"), BookieId("b")
    missing = {LedgerId(1): {b: ((3, 3), (5, 9)), a: ((0, 1),)}}
    found = changes(replace(plan((SHORT, 0, 1)), missing=missing, damaged={LedgerId(1): (b,)}))
    assert found.publish[0].reasons == (
        "some entries are damaged on b",
        "entries 0-1 are missing on a",
        "entries 3, 5-9 are missing on b",
    )
