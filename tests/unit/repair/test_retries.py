"""When blocked jobs are tried again."""

from collections.abc import Container
from dataclasses import replace

import pytest

from metadata.ids import LedgerId
from metadata.repair.jobs import Job, JobName, JobState
from repair.needs import RepairClass
from repair.retries import PUBLISHED_MAX, SEEN_AFTER_S, Retries, SetAside

QUEUED = Job(JobName(RepairClass.SHORT_OF_WRITE_QUORUM, 5, LedgerId(1)), ("why",), 5)
BLOCKED = replace(QUEUED, state=JobState.BLOCKED, blocked_reason="too few")


def due(
    retries: Retries, now_s: float, members: str = "ab", *, changed: Container[LedgerId] = ()
) -> list[Job]:
    """Return what is due while the job is blocked."""
    return retries.look({BLOCKED.name: BLOCKED}, tuple(members), changed, now_s)


@pytest.fixture
def retries() -> Retries:
    """Return them with a job that was tried again long after the latest change, at 100 s."""
    made = Retries()
    assert due(made, 0.0) == [QUEUED]
    made.note_queued(QUEUED.name, 100.0)
    assert due(made, 110.0) == []
    return made


def test_a_job_is_not_tried_again_without_a_change(retries: Retries) -> None:
    assert not any(due(retries, float(each)) for each in range(120, 1_000, 10))


def test_a_new_auditor_tries_what_it_finds_blocked() -> None:
    assert due(Retries(), 0.0) == [QUEUED]


def test_only_blocked_jobs_are_due() -> None:
    lost = replace(QUEUED, state=JobState.LOST)
    assert Retries().look({lost.name: lost}, ("a",), (), 0.0) == []
    assert Retries().look({QUEUED.name: QUEUED}, ("a",), (), 0.0) == []


@pytest.mark.parametrize("members", ["abc", "a", "ac"])
def test_another_bookie_is_a_change(retries: Retries, members: str) -> None:
    assert due(retries, 200.0, members) == [QUEUED]


def test_a_job_is_due_until_it_is_stored(retries: Retries) -> None:
    assert due(retries, 200.0, "abc")
    assert due(retries, 205.0, "abc"), "storing it failed"
    retries.note_queued(QUEUED.name, 206.0)
    assert not due(retries, 210.0, "abc")


def test_an_attempt_that_began_before_the_change_does_not_count(retries: Retries) -> None:
    assert retries.look({QUEUED.name: QUEUED}, ("a",), (), 200.0) == []
    assert due(retries, 205.0, "a") == [QUEUED]


def test_a_job_is_tried_once_more_after_all_have_seen_the_change(retries: Retries) -> None:
    assert due(retries, 200.0, "abc")
    retries.note_queued(QUEUED.name, 200.0)
    assert not due(retries, 199.0 + SEEN_AFTER_S, "abc")
    assert due(retries, 200.0 + SEEN_AFTER_S, "abc")
    retries.note_queued(QUEUED.name, 200.0 + SEEN_AFTER_S)
    assert not due(retries, 1_000.0, "abc")


def test_a_change_of_the_ledger_makes_it_due_until_it_is_stored(retries: Retries) -> None:
    assert not due(retries, 200.0, changed={LedgerId(2)})
    assert due(retries, 210.0, changed={LedgerId(1)}) == [QUEUED]
    assert due(retries, 220.0) == [QUEUED]
    retries.note_queued(QUEUED.name, 221.0)
    assert not due(retries, 230.0)


def test_a_job_that_is_gone_is_forgotten(retries: Retries) -> None:
    assert retries.look({}, ("a", "b"), (), 200.0) == []
    assert due(retries, 210.0) == [QUEUED], "another job of the same name"


# -- ledgers that are set aside --------------------------------------------------------------------


def blocked_jobs(count: int, reason: str = "too few") -> list[Job]:
    """Return blocked jobs, the largest ledger first."""
    names = [JobName(RepairClass.SHORT_OF_WRITE_QUORUM, n, LedgerId(n)) for n in range(count)]
    return [Job(each, ("why",), 5, JobState.BLOCKED, reason) for each in reversed(names)]


def test_only_jobs_that_wait_for_a_change_are_set_aside(retries: Retries) -> None:
    published = {BLOCKED.name: BLOCKED}
    assert retries.waiting(published) == [BLOCKED]
    assert retries.waiting({QUEUED.name: QUEUED}) == []
    due(retries, 200.0, "abc")
    assert retries.waiting(published) == [], "it is tried again"
    retries.note_queued(QUEUED.name, 201.0)
    assert retries.waiting(published) == [], "it is tried once more"
    retries.note_queued(QUEUED.name, 200.0 + SEEN_AFTER_S)
    assert retries.waiting(published) == [BLOCKED]


def test_the_least_urgent_jobs_give_room() -> None:
    aside = SetAside()
    removed = aside.look(blocked_jobs(PUBLISHED_MAX + 2), ("a",), ())
    assert [each.ledger_id for each in removed] == [PUBLISHED_MAX + 1, PUBLISHED_MAX]
    assert sorted(aside.ledgers) == [PUBLISHED_MAX, PUBLISHED_MAX + 1]
    assert aside.reasons == {"too few": 2}
    assert aside.look(blocked_jobs(PUBLISHED_MAX), ("a",), ()) == []


def test_ledgers_come_back_when_something_changes() -> None:
    aside = SetAside()
    aside.look(blocked_jobs(PUBLISHED_MAX + 3), ("a",), ())
    aside.look((), ("a",), (LedgerId(PUBLISHED_MAX), LedgerId(1)))
    assert sorted(aside.ledgers) == [PUBLISHED_MAX + 1, PUBLISHED_MAX + 2]
    aside.look((), ("a", "b"), ())
    assert not aside.ledgers
    assert not aside.reasons


def test_the_number_of_ledgers_that_are_set_aside_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("repair.retries.SET_ASIDE_MAX", 3)
    aside = SetAside()
    removed = aside.look(blocked_jobs(PUBLISHED_MAX + 9), ("a",), ())
    assert (len(removed), len(aside.ledgers)) == (3, 3)
    assert aside.look(blocked_jobs(PUBLISHED_MAX + 6), ("a",), ()) == []
