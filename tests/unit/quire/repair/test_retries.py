"""When blocked jobs are tried again."""

from collections.abc import Container
from dataclasses import replace

import pytest

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.registry.registration import BookieRegistration
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.scrub import BadRange
from quire.repair.needs import RepairClass
from quire.repair.publishing import PUBLISHED_MAX, SEEN_AFTER_S, Changes, Retries, SetAside
from quire.repair.standing import Standing
from tests.support.sample_ledgers import bookies

QUEUED = Job(JobName(RepairClass.SHORT_OF_WRITE_QUORUM, 5, LedgerId(1)), ("why",), 5)
BLOCKED = replace(QUEUED, state=JobState.BLOCKED, blocked_reason="too few")


def due(
    retries: Retries,
    now_s: float,
    *,
    is_changed: bool = False,
    changed: Container[LedgerId] = (),
) -> list[JobName]:
    """Return what is due while the job is blocked."""
    published = {BLOCKED.name: BLOCKED}
    return retries.look(published, changed, now_s, is_cluster_changed=is_changed)


@pytest.fixture
def retries() -> Retries:
    """Return them with a job that was tried again long after the latest change, at 100 s."""
    made = Retries()
    assert due(made, 0.0, is_changed=True) == [QUEUED.name]
    made.note_queued(QUEUED.name, 100.0)
    assert due(made, 110.0) == []
    return made


def test_a_job_is_not_tried_again_without_a_change(retries: Retries) -> None:
    assert not any(due(retries, float(number)) for number in range(120, 1_000, 10))


def test_a_new_auditor_tries_what_it_finds_blocked() -> None:
    assert due(Retries(), 0.0, is_changed=Changes().of_cluster({}, {})) == [QUEUED.name]


def test_no_job_is_due_or_waits_before_the_first_change() -> None:
    retries = Retries()
    assert due(retries, 0.0) == []
    assert due(retries, 10.0, is_changed=True) == [QUEUED.name]
    assert retries.waiting({BLOCKED.name: BLOCKED}) == [], "it was not tried again yet"


def test_only_blocked_jobs_are_due() -> None:
    lost = replace(QUEUED, state=JobState.LOST)
    assert Retries().look({lost.name: lost}, (), 0.0, is_cluster_changed=True) == []
    assert Retries().look({QUEUED.name: QUEUED}, (), 0.0, is_cluster_changed=True) == []


def test_a_job_is_due_until_it_is_stored(retries: Retries) -> None:
    assert due(retries, 200.0, is_changed=True)
    assert due(retries, 205.0), "storing it failed"
    retries.note_queued(QUEUED.name, 206.0)
    assert not due(retries, 210.0)


def test_an_attempt_that_began_before_the_change_does_not_count(retries: Retries) -> None:
    assert retries.look({QUEUED.name: QUEUED}, (), 200.0, is_cluster_changed=True) == []
    assert due(retries, 205.0) == [QUEUED.name]


def test_a_job_is_tried_once_more_after_all_have_seen_the_change(retries: Retries) -> None:
    assert due(retries, 200.0, is_changed=True)
    retries.note_queued(QUEUED.name, 200.0)
    assert not due(retries, 199.0 + SEEN_AFTER_S)
    assert due(retries, 200.0 + SEEN_AFTER_S)
    retries.note_queued(QUEUED.name, 200.0 + SEEN_AFTER_S)
    assert not due(retries, 1_000.0)


def test_a_change_of_the_ledger_makes_it_due_until_it_is_stored(retries: Retries) -> None:
    assert not due(retries, 200.0, changed={LedgerId(2)})
    assert due(retries, 210.0, changed={LedgerId(1)}) == [QUEUED.name]
    assert due(retries, 220.0) == [QUEUED.name]
    retries.note_queued(QUEUED.name, 221.0)
    assert not due(retries, 230.0)


def test_a_job_that_is_gone_is_forgotten(retries: Retries) -> None:
    assert retries.look({}, (), 200.0, is_cluster_changed=False) == []
    assert due(retries, 210.0) == [QUEUED.name], "another job of the same name"


# -- changes ---------------------------------------------------------------------------------------


def registered(names: str, *, read_only: str = "") -> dict[BookieId, BookieRegistration]:
    """Return registrations, some of bookies that are not writable."""
    return {
        bookie: BookieRegistration(bookie, "host", 1, writable=bookie not in read_only)
        for bookie in bookies(names)
    }


@pytest.mark.parametrize(
    ("up", "read_only", "standings", "is_change"),
    [
        ("ab", "b", {}, False),
        ("abc", "b", {}, True),
        ("abc", "bc", {}, True),
        ("a", "", {}, False),
        ("ab", "", {}, True),
        ("ab", "ab", {}, False),
        ("ab", "b", {"a": Standing.DRAINING}, True),
        ("a", "", {"b": Standing.GONE}, True),
    ],
)
def test_what_may_help_or_gives_more_to_do_is_a_change(
    up: str, read_only: str, standings: dict[BookieId, Standing], is_change: bool
) -> None:
    changes = Changes()
    assert changes.of_cluster(registered("ab", read_only="b"), {}), "the first look"
    assert not changes.of_cluster(registered("ab", read_only="b"), {})
    assert changes.of_cluster(registered(up, read_only=read_only), standings) is is_change
    assert not changes.of_cluster(registered(up, read_only=read_only), standings)


def test_a_bookie_that_returns_is_a_change() -> None:
    changes = Changes()
    changes.of_cluster(registered("ab"), {})
    changes.of_cluster(registered("a"), {})
    assert changes.of_cluster(registered("ab"), {})


def test_more_damaged_or_missing_entries_are_a_change_of_their_ledger() -> None:
    changes = Changes()
    a, b = bookies("ab")
    first, second = [BadRange(LedgerId(each), EntryId(0), EntryId(5)) for each in (1, 2)]
    assert changes.of_ledgers({a: (first,)}, {}) == {1}
    assert changes.of_ledgers({a: (first,)}, {LedgerId(3): {b: ((0, 1),)}}) == {3}
    assert changes.of_ledgers({a: (first, second)}, {LedgerId(3): {b: ((0, 1),)}}) == {2}
    assert changes.of_ledgers({b: (first,)}, {LedgerId(3): {b: ((1, 1),)}}) == {1, 2, 3}
    assert changes.of_ledgers({}, {}) == {1}, "an entry that can be read again may help"


# -- ledgers that are set aside --------------------------------------------------------------------


def blocked_jobs(count: int, reason: str = "too few") -> list[Job]:
    """Return blocked jobs, the largest ledger first."""
    names = [JobName(RepairClass.SHORT_OF_WRITE_QUORUM, n, LedgerId(n)) for n in range(count)]
    return [Job(name, ("why",), 5, JobState.BLOCKED, reason) for name in reversed(names)]


def test_only_jobs_that_wait_for_a_change_are_set_aside(retries: Retries) -> None:
    published = {BLOCKED.name: BLOCKED}
    assert retries.waiting(published) == [BLOCKED]
    assert retries.waiting({QUEUED.name: QUEUED}) == []
    due(retries, 200.0, is_changed=True)
    assert retries.waiting(published) == [], "it is tried again"
    retries.note_queued(QUEUED.name, 201.0)
    assert retries.waiting(published) == [], "it is tried once more"
    retries.note_queued(QUEUED.name, 200.0 + SEEN_AFTER_S)
    assert retries.waiting(published) == [BLOCKED]


def test_the_least_urgent_jobs_give_room() -> None:
    aside = SetAside()
    removed = aside.look(blocked_jobs(PUBLISHED_MAX + 2))
    assert [job_name.ledger_id for job_name in removed] == [PUBLISHED_MAX + 1, PUBLISHED_MAX]
    assert sorted(aside.ledgers) == [PUBLISHED_MAX, PUBLISHED_MAX + 1]
    assert aside.reasons == {"too few": 2}
    assert aside.look(blocked_jobs(PUBLISHED_MAX)) == []


def test_ledgers_come_back_when_something_changes() -> None:
    aside = SetAside()
    aside.look(blocked_jobs(PUBLISHED_MAX + 3))
    aside.bring_back((LedgerId(PUBLISHED_MAX), LedgerId(1)), is_cluster_changed=False)
    assert sorted(aside.ledgers) == [PUBLISHED_MAX + 1, PUBLISHED_MAX + 2]
    aside.bring_back((), is_cluster_changed=True)
    assert not aside.ledgers
    assert not aside.reasons


def test_the_number_of_ledgers_that_are_set_aside_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quire.repair.publishing.SET_ASIDE_MAX", 3)
    aside = SetAside()
    removed = aside.look(blocked_jobs(PUBLISHED_MAX + 9))
    assert (len(removed), len(aside.ledgers)) == (3, 3)
    assert aside.look(blocked_jobs(PUBLISHED_MAX + 6)) == []
