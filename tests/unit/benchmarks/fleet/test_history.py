"""One history of faults for all configurations, drawn only from the seed."""

from dataclasses import replace
from itertools import pairwise

from benchmarks.fleet.assumptions import Assumptions
from benchmarks.fleet.history import Fault, FaultKind, draw_history

MONTH = Assumptions(bookies=20, racks=4, clients=5, rack_failures=1.0, disk_losses=0.5)


def of(kind: FaultKind, history: list[Fault]) -> list[Fault]:
    return [fault for fault in history if fault.kind is kind]


def test_the_same_seed_gives_the_same_history() -> None:
    assert draw_history(MONTH, 7) == draw_history(MONTH, 7)
    assert draw_history(MONTH, 7) != draw_history(MONTH, 8)


def test_every_kind_happens_in_order_and_in_time() -> None:
    history = draw_history(MONTH, 7)
    assert [fault.at_s for fault in history] == sorted(fault.at_s for fault in history)
    assert all(0 <= fault.at_s < MONTH.end_s for fault in history)
    assert {fault.kind for fault in history} == set(FaultKind)


def test_the_rate_of_one_kind_changes_no_other() -> None:
    before, after = draw_history(MONTH, 7), draw_history(replace(MONTH, pauses=40.0), 7)
    for kind in FaultKind:
        assert (of(kind, before) == of(kind, after)) == (kind is not FaultKind.PAUSE)


def test_a_higher_rate_gives_more_faults() -> None:
    few, many = (
        len(of(FaultKind.CRASH, draw_history(replace(MONTH, crashes=rate), 7))) for rate in (1, 10)
    )
    assert 100 < many < 300  # 20 bookies, 10 a month
    assert few < many / 4


def test_the_faults_of_one_subject_and_kind_do_not_overlap() -> None:
    history = draw_history(replace(MONTH, crashes=200.0, restart_s=3600.0), 7)
    for machine in range(MONTH.bookies):
        own = [fault for fault in of(FaultKind.CRASH, history) if fault.subject == machine]
        assert len(own) > 10
        assert all(a.end_s <= b.at_s for a, b in pairwise(own))
