"""Tests of the errors of writers that a campaign accepts."""

import pytest

from tests.campaign.availability import ZOOKEEPER, FaultTime, Setting, hit_within, unexplained
from tests.campaign.history import WriterError

QUORUM = Setting(bookies=8, ensemble=3, min_in_sync=None)
IN_SYNC = Setting(bookies=8, ensemble=3, min_in_sync=2)


def faults(*parts: str, ended: float = 95.0) -> list[FaultTime]:
    return [FaultTime(part, ended - 1.0, ended) for part in parts]


def is_accepted(
    name: str, hit: list[FaultTime], setting: Setting = QUORUM, doing: str = "append"
) -> bool:
    error = WriterError(100.0, 7, doing, name, "why")
    return not unexplained([error], hit, setting)


def test_a_shortage_needs_faults_in_all_spares() -> None:
    assert is_accepted("NotEnoughBookiesError", faults("a", "b", "c", "d", "e"))
    assert not is_accepted("NotEnoughBookiesError", faults("a", "b", "c", "d"))
    assert not is_accepted("NotEnoughBookiesError", faults("a", "b", "c", "d", "e", ended=70.0))
    assert is_accepted("NotEnoughBookiesError", faults(ZOOKEEPER))


def test_an_append_of_a_quorum_ledger_is_never_late() -> None:
    assert not is_accepted("QuorumTimeoutError", faults("a", "b", "c", ZOOKEEPER))


def test_an_append_of_an_in_sync_ledger_waits_for_members() -> None:
    for name in ("QuorumTimeoutError", "NotEnoughInSyncReplicasError"):
        assert is_accepted(name, faults("a", "b"), IN_SYNC)
        assert not is_accepted(name, faults("a"), IN_SYNC)
        assert not is_accepted(name, faults("a", "b", ended=40.0), IN_SYNC)


def test_an_unavailable_service_needs_a_fault_of_zookeeper() -> None:
    assert is_accepted("MetadataUnavailableError", faults(ZOOKEEPER))
    assert not is_accepted("MetadataUnavailableError", faults("a", "b", "c", "d", "e"))


@pytest.mark.parametrize(
    "name", ["LedgerFencedError", "LedgerNotFoundError", "TooManyFragmentsError", "LedgerError"]
)
def test_other_errors_are_never_accepted(name: str) -> None:
    hit = faults("a", "b", "c", "d", "e", "f", "g", "h", ZOOKEEPER)
    assert not is_accepted(name, hit)
    assert not is_accepted(name, hit, IN_SYNC)
    assert not is_accepted(name, hit, doing="create")


def test_recoveries_are_repeated_and_not_judged() -> None:
    assert is_accepted("RecoveryUndecidedError", [], doing="recover")


def test_a_complaint_names_the_ledger_and_the_error() -> None:
    (text,) = unexplained([WriterError(100.0, 7, "append", "LedgerFencedError", "why")], [], QUORUM)
    assert text == "ledger 7: append failed without need: LedgerFencedError: why"


def test_a_fault_counts_while_it_lasts() -> None:
    lasting = [FaultTime("a", 10.0, 90.0)]
    assert hit_within(lasting, 40.0, 50.0) == ["a"]
    assert hit_within(lasting, 91.0, 99.0) == []
    assert hit_within(lasting, 1.0, 9.0) == []
