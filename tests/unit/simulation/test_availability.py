"""Tests of the errors of writers that the simulation accepts, and of the bound for appends."""

import math
from dataclasses import replace

import pytest

from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX
from tests.simulation.availability.decision import (
    CATCH_UP_S,
    KNOWN_AFTER_S,
    SERVICE,
    FaultTime,
    LedgerFacts,
    Setting,
    WriterError,
    is_explained,
    is_late,
    link_of,
    memory_of,
    session_of,
)

NOW = 100.0
WRITER = "writer-0"
BOOKIES = ("a", "b", "c", "d", "e")
SETTING = Setting(BOOKIES, add_timeout_s=1.0)
QUORUM = LedgerFacts(ensemble=3)
IN_SYNC = LedgerFacts(ensemble=3, min_in_sync=2)
ALL_ERRORS = (
    "LedgerError",
    "LedgerFencedError",
    "LedgerNotFoundError",
    "LedgerClosedError",
    "BackpressureError",
    "TooManyFragmentsError",
    "NotEnoughBookiesError",
    "QuorumTimeoutError",
    "MetadataUnavailableError",
    "EntryConflictError",
    "UnauthorizedError",
    "MetadataConflictError",
    "ClientClosedError",
)


def faults(*parts: str, ended: float = NOW) -> list[FaultTime]:
    return [FaultTime(part, ended - 1.0, ended) for part in parts]


def is_accepted(
    name: str,
    hit: list[FaultTime],
    ledger: LedgerFacts = QUORUM,
    *,
    limit_s: float = 10.0,
    setting: Setting = SETTING,
) -> bool:
    return is_explained(WriterError(NOW, WRITER, name, limit_s, ledger), hit, setting)


@pytest.mark.parametrize("name", [*ALL_ERRORS, "NotEnoughInSyncReplicasError"])
def test_without_faults_no_error_is_accepted(name: str) -> None:
    assert not is_accepted(name, [], IN_SYNC)
    assert not is_accepted(name, faults(*BOOKIES, SERVICE, WRITER, ended=10.0), IN_SYNC)


@pytest.mark.parametrize("name", ALL_ERRORS)
def test_faults_of_other_clients_explain_nothing(name: str) -> None:
    links = [link_of(bookie, "writer-1") for bookie in BOOKIES]
    assert not is_accepted(name, faults("writer-1", session_of("writer-1"), *links))


@pytest.mark.parametrize(
    "name", ["LedgerError", "EntryConflictError", "UnauthorizedError", "MetadataConflictError"]
)
def test_no_fault_explains_an_internal_error(name: str) -> None:
    facts = replace(QUORUM, was_recovered=True, is_deleted=True, fragments=FRAGMENTS_MAX)
    assert not is_accepted(name, faults(*BOOKIES, SERVICE, WRITER), facts)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("LedgerFencedError", replace(QUORUM, was_recovered=True)),
        ("LedgerNotFoundError", replace(QUORUM, is_deleted=True)),
        ("LedgerClosedError", replace(QUORUM, is_ending=True)),
        ("BackpressureError", replace(QUORUM, has_pending=True)),
        ("TooManyFragmentsError", replace(QUORUM, fragments=FRAGMENTS_MAX)),
    ],
)
def test_a_fact_explains_an_error_and_faults_do_not(name: str, facts: LedgerFacts) -> None:
    assert is_accepted(name, [], facts)
    assert not is_accepted(name, faults(*BOOKIES, SERVICE, WRITER))


def test_an_append_fails_inside_the_client_only_where_its_memory_does() -> None:
    assert is_accepted("LedgerError", faults(memory_of(WRITER)))
    assert not is_accepted("LedgerError", faults(memory_of("writer-1")))
    assert not is_accepted("LedgerError", faults(memory_of(WRITER), ended=10.0))


def test_two_fragments_are_not_too_many() -> None:
    assert not is_accepted("TooManyFragmentsError", [], replace(QUORUM, fragments=2))


def test_a_shortage_needs_faults_in_more_bookies_than_there_are_spares() -> None:
    assert is_accepted("NotEnoughBookiesError", faults("a", "b", "c"))
    assert not is_accepted("NotEnoughBookiesError", faults("a", "b"))
    assert not is_accepted("NotEnoughBookiesError", faults("a", "a", "b", "b"))
    assert not is_accepted("NotEnoughBookiesError", faults("a", "b", "x"))


def test_a_bookie_that_the_client_cannot_reach_is_no_spare() -> None:
    cut = faults(*(link_of(each, WRITER) for each in "abc"))
    assert is_accepted("NotEnoughBookiesError", cut)
    assert not is_accepted("NotEnoughBookiesError", cut[:2])


def test_a_damaged_bookie_is_no_spare() -> None:
    damaged = replace(SETTING, damaged=("c",))
    assert is_accepted("NotEnoughBookiesError", faults("a", "b"), setting=damaged)
    assert not is_accepted("NotEnoughBookiesError", faults("a", "c"), setting=damaged)


def test_a_fault_counts_until_every_client_knows_its_end() -> None:
    assert is_accepted("NotEnoughBookiesError", faults(*"abc", ended=NOW - KNOWN_AFTER_S))
    assert not is_accepted("NotEnoughBookiesError", faults(*"abc", ended=NOW - KNOWN_AFTER_S - 0.1))
    later = [FaultTime(each, NOW + 0.1, math.inf) for each in "abc"]
    assert not is_accepted("NotEnoughBookiesError", later)


@pytest.mark.parametrize("part", [SERVICE, session_of(WRITER), WRITER])
def test_an_unavailable_service_needs_a_fault_of_it_within_the_limit(part: str) -> None:
    assert is_accepted("MetadataUnavailableError", faults(part, ended=NOW - 10.0))
    assert not is_accepted("MetadataUnavailableError", faults(part, ended=NOW - 14.0))


def test_a_client_that_was_paused_may_take_every_bookie_for_failed() -> None:
    for name in ("NotEnoughBookiesError", "QuorumTimeoutError"):
        assert is_accepted(name, faults(WRITER))
    assert is_accepted("NotEnoughInSyncReplicasError", faults(WRITER), IN_SYNC)


@pytest.mark.parametrize("part", [SERVICE, session_of(WRITER)])
def test_without_the_metadata_service_a_client_does_not_know_who_returned(part: str) -> None:
    away = [FaultTime(part, 50.0, NOW)]
    returned = faults("a", "b", "c", ended=60.0)
    assert is_accepted("NotEnoughBookiesError", [*away, *returned])
    assert not is_accepted("NotEnoughBookiesError", away)
    assert not is_accepted("NotEnoughBookiesError", [*away, *faults(*"abc", ended=40.0)])
    earlier = FaultTime(part, 38.0, 49.0)
    assert is_accepted("NotEnoughBookiesError", [*away, earlier, *faults(*"abc", ended=40.0)])


@pytest.mark.parametrize("part", [SERVICE, session_of(WRITER)])
def test_an_append_needs_the_metadata_service_only_if_a_bookie_fails(part: str) -> None:
    assert not is_accepted("QuorumTimeoutError", faults(part))
    assert is_accepted("QuorumTimeoutError", faults(part, "a"))


def test_bookies_do_not_explain_an_unavailable_service() -> None:
    assert not is_accepted("MetadataUnavailableError", faults(*BOOKIES))


def test_a_short_limit_may_end_an_append_without_a_fault() -> None:
    assert is_accepted("QuorumTimeoutError", faults(), limit_s=0.05)
    assert not is_accepted("QuorumTimeoutError", faults(), limit_s=1.0)


def test_each_failed_bookie_may_delay_an_append_by_a_timeout_and_a_replacement() -> None:
    assert not is_accepted("QuorumTimeoutError", faults("a", "b"))
    assert is_accepted("QuorumTimeoutError", faults("a", "b"), limit_s=6.0)
    assert not is_accepted("QuorumTimeoutError", faults("a"), limit_s=6.0)
    slow = replace(SETTING, add_timeout_s=5.0)
    assert is_accepted("QuorumTimeoutError", faults("a", "b"), setting=slow)
    assert is_accepted("QuorumTimeoutError", faults("a", "b", "c"))


def test_an_in_sync_ledger_may_refuse_without_enough_members() -> None:
    for name in ("NotEnoughInSyncReplicasError", "QuorumTimeoutError"):
        assert is_accepted(name, faults("a", "b"), IN_SYNC)
        assert not is_accepted(name, faults("a"), IN_SYNC)
    name, ended = "NotEnoughInSyncReplicasError", NOW - CATCH_UP_S - KNOWN_AFTER_S - 1.0
    assert not is_accepted(name, faults("a", "b", ended=ended), IN_SYNC)
    assert is_accepted(name, faults("a", "b", ended=ended), replace(IN_SYNC, copy_s=1.0))
    assert is_accepted(name, [], replace(IN_SYNC, lags_by_entries=True))


def test_an_append_is_late_after_the_bound_from_call_healing_and_last_fault() -> None:
    assert is_late(10.0, 70.1, 10.0, [], bound_s=60.0)
    assert not is_late(10.0, 70.0, 10.0, [], bound_s=60.0)
    assert not is_late(20.0, 70.1, 10.0, [], bound_s=60.0)
    assert not is_late(10.0, 70.1, 20.0, [], bound_s=60.0)
    assert not is_late(10.0, 70.1, 10.0, faults("a", ended=20.0), bound_s=60.0)
    assert is_late(10.0, 80.1, 10.0, faults("a", ended=20.0), bound_s=60.0)
    assert is_late(10.0, 70.1, 10.0, [FaultTime("a", 5.0, math.inf)], bound_s=60.0)
