"""The judge of sessions accepts what ZooKeeper and the store promise, and nothing else."""

import pytest

from tests.campaign.availability import ZOOKEEPER, FaultTime
from tests.campaign.zookeeper.judge import SILENCE_S_MAX, Verdict, judge
from tests.campaign.zookeeper.record import Change, Complaint, Read, Record, Write

OUTAGE = FaultTime(ZOOKEEPER, 100.0, 115.0)


def verdict_of(*facts: Change | Read | Write | Complaint, outage: bool = False) -> Verdict:
    record = Record("h0")
    for fact in facts:
        record.take(fact)
    return judge([record], [OUTAGE] if outage else [])


def read(at: float, version: int, kind: str = "plain", value: str = "") -> Read:
    return Read(at - 0.1, at, kind, version, value or f"value {version}")


def write(at: float, expected: int, outcome: str = "applied", value: str = "") -> Write:
    return Write(at - 0.1, at, expected, value or f"value {expected + 1}", outcome)


def test_a_record_without_faults_is_accepted() -> None:
    verdict = verdict_of(write(1.0, 0), read(2.0, 1, "agreed"), read(3.0, 1, "fresh"))
    assert verdict.complaints == []
    assert (verdict.calls, verdict.applied, verdict.longest_silence_s) == (3, 1, 1.0)


def test_an_applied_write_that_another_value_replaces_is_lost() -> None:
    (text,) = verdict_of(write(1.0, 0), read(2.0, 1, value="other")).complaints
    assert text == "h0: version 1 is 'value 1', and it was 'other'"


@pytest.mark.parametrize("outcome", ["conflict", "unavailable"])
def test_a_write_that_was_refused_must_not_be_there(outcome: str) -> None:
    refused = write(105.0, 1, outcome, "mine")
    assert verdict_of(read(104.0, 1), refused, read(106.0, 2), outage=True).complaints == []
    taken = read(106.0, 2, value="mine")
    found = verdict_of(read(104.0, 1), refused, taken, outage=True)
    assert found.complaints == [f"h0: mine: {outcome}, and it is version 2"]


def test_a_write_of_unknown_outcome_may_be_there_or_not() -> None:
    unknown = write(1.0, 0, "unknown", "mine")
    assert verdict_of(unknown, read(2.0, 1, value="mine")).complaints == []
    assert verdict_of(unknown, read(2.0, 1)).complaints == []


def test_no_read_goes_back() -> None:
    for kind in ("plain", "fresh", "agreed"):
        texts = verdict_of(read(1.0, 2), read(2.0, 1, kind)).complaints
        assert f"h0: a {kind} read returned version 1 after 2" in texts


def test_an_agreed_read_sees_the_ended_writes_of_others() -> None:
    writer, reader = Record("h0"), Record("h1")
    writer.take(write(1.0, 0))
    for kind, complaints, stale in (("agreed", 1, 0), ("fresh", 0, 1), ("plain", 0, 0)):
        reader.reads = [Read(1.9, 2.0, kind, 0, "")]
        verdict = judge([writer, reader], [])
        assert (len(verdict.complaints), verdict.stale_fresh_reads) == (complaints, stale)


def test_a_session_ends_only_without_a_quorum() -> None:
    facts = (Change(90.0, "suspended", 1), Change(112.0, "expired", 1))
    assert len(verdict_of(*facts).complaints) == 1
    verdict = verdict_of(*facts, outage=True)
    assert (verdict.complaints, verdict.sessions_ended) == ([], 1)
    later = (Change(190.0, "suspended", 1), Change(200.0, "expired", 1))
    assert len(verdict_of(*later, outage=True).complaints) == 1


def test_a_session_that_continues_is_counted() -> None:
    moved = verdict_of(Change(1.0, "suspended", 1), Change(2.0, "connected", 1))
    assert (moved.sessions_moved, moved.complaints) == (1, [])
    replaced = verdict_of(Change(1.0, "suspended", 1), Change(2.0, "connected", 2))
    assert replaced.sessions_moved == 0


def test_a_call_fails_only_without_a_quorum() -> None:
    for failed in (Read(105.0, 115.0, "plain", error="why"), write(115.0, 0, "unavailable")):
        assert len(verdict_of(failed).complaints) == 1
        assert verdict_of(failed, outage=True).complaints == []


def test_a_silence_needs_an_outage() -> None:
    late = 100.0 + SILENCE_S_MAX + 1
    assert len(verdict_of(read(100.0, 1), read(late, 1)).complaints) == 1
    verdict = verdict_of(read(100.0, 1), read(late, 1), outage=True)
    assert (verdict.complaints, verdict.longest_silence_s) == ([], 0.0)


def test_what_a_process_noticed_is_a_complaint() -> None:
    assert verdict_of(Complaint(1.0, "gone")).complaints == ["h0: gone"]
