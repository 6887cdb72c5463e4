"""Figures of one run, from small journals whose figures can be counted by hand."""

import pytest

from quire.bench import measuring
from quire.bench.journal import Ack, Journal


def ack(number: int, at: float, *, ledger_id: int = 1) -> Ack:
    return Ack(number, ledger_id, number, at)


def test_latency_counts_from_when_an_append_was_due() -> None:
    found = measuring.latencies([0.0, 1.0], [ack(0, 100.5), ack(1, 104.0)], start=100.0, end=9.0)
    assert found.took == (0.5, 3.0)
    assert found.unacknowledged_count == 0


def test_an_append_that_was_never_acknowledged_counts_until_the_end() -> None:
    found = measuring.latencies([0.0, 1.0], [ack(0, 100.5)], start=100.0, end=9.0)
    assert found.took == (0.5, 8.0)
    assert found.unacknowledged_count == 1


def test_an_append_acknowledged_twice_counts_once_as_first() -> None:
    found = measuring.latencies([0.0], [ack(0, 100.5), ack(0, 107.0)], start=100.0, end=9.0)
    assert (found.took, found.acked_at) == ((0.5,), (0.5,))


def test_silence_is_the_longest_gap_and_the_sum_of_empty_windows() -> None:
    found = measuring.silence([0.05, 0.15, 0.55, 0.95], seconds=1.0)
    assert found.longest_s == pytest.approx(0.4)
    assert found.windows_s == pytest.approx(0.6)


def test_without_acknowledgements_the_complete_load_is_silent() -> None:
    found = measuring.silence([], seconds=2.0)
    assert found.longest_s == 2.0
    assert found.windows_s == pytest.approx(2.0)


def test_acknowledgements_after_the_load_are_not_in_its_rates() -> None:
    assert measuring.silence([0.5, 2.5], seconds=1.0).longest_s == 0.5
    assert measuring.acked_per_second([0.5, 1.5, 1.6, 2.5], seconds=2.0) == (1, 2)


def test_slices_hold_every_append_by_when_it_was_due() -> None:
    found = measuring.latencies(
        [0.0, 0.4, 0.6, 0.9], [ack(n, n * 1.0) for n in range(4)], start=0.0, end=9.0
    )
    parts = measuring.slices(found, 1.0, 2)
    assert [(part.at, part.count) for part in parts] == [(0.0, 2), (0.5, 2)]
    assert parts[1].max_ms == pytest.approx(2_100.0)


def test_a_change_is_measured_from_the_latest_notice_of_a_failed_member() -> None:
    notes = (
        {"kind": "BookieUnreachable", "at": 10.0, "bookie_id": "a"},
        {"kind": "BookieSuspected", "at": 10.2, "bookie_id": "b"},
        {"kind": "BookieUnreachable", "at": 10.4, "bookie_id": "c"},
        {"kind": "EnsembleChanged", "at": 10.5, "ledger_id": 1, "replaced": ["a", "b"]},
        {"kind": "EnsembleChanged", "at": 10.6, "ledger_id": 1, "replaced": ["d"]},
    )
    found = measuring.changes(Journal((), notes), start=10.0)
    assert [change.at for change in found] == [pytest.approx(0.5), pytest.approx(0.6)]
    assert [change.replaced for change in found] == [("a", "b"), ("d",)]
    assert found[0].took_s == pytest.approx(0.3)
    assert found[1].took_s is None


def test_changes_before_the_load_do_not_count() -> None:
    note = {"kind": "EnsembleChanged", "at": 9.0, "ledger_id": 1, "replaced": []}
    assert measuring.changes(Journal((), (note,)), start=10.0) == []


def test_short_entries_are_counted_entry_by_entry() -> None:
    notes = (
        {"kind": "replicated", "at": 10.5, "acked_at": 10.4},
        {"kind": "left_short", "at": 11.0, "acked_at": 10.5},
        {"kind": "replicated", "at": 10.5, "acked_at": 9.0},
        {
            "kind": "zones_at_end",
            "at": 20.0,
            "ledger_id": 1,
            "fully_to": 90,
            "last_confirmed": 99,
            "last_pushed": 99,
            "short": [[7, 8], [89, 93]],
        },
    )
    acks = tuple(Ack(n, 1, n, 11.0 + n / 100) for n in range(100))
    found = measuring.at_ack_quorum(Journal(acks, notes), start=10.0)
    assert found.sample_count == 1
    assert found.max_s == pytest.approx(0.1, rel=1e-3)
    assert found.left_count == 2 + 2 + 9
    assert found.left_s == pytest.approx(20.0 - 11.07)


def test_without_short_entries_the_count_is_zero() -> None:
    end = {"fully_to": 9, "last_confirmed": 9, "last_pushed": 12, "short": []}
    note = {"kind": "zones_at_end", "at": 20.0, "ledger_id": 1, **end}
    found = measuring.at_ack_quorum(Journal((), (note,)), start=10.0)
    assert (found.sample_count, found.left_count, found.left_s) == (0, 0, 0.0)


def test_zones_are_those_nearest_to_the_given_time() -> None:
    def note(at: float, fully_to: int) -> dict[str, object]:
        ends = {"fully_to": fully_to, "last_confirmed": 19, "last_pushed": 29}
        return {"kind": "zones", "at": at, "ledger_id": 1, "short": [[2, 4], [12, 13]], **ends}

    journal = Journal((), (note(11.0, 5), note(12.0, 9)))
    found = measuring.zones(journal, 10.0, 1.9, all_acknowledge=False)
    assert found is not None
    assert (found.fully_to, found.at_ack_quorum_count, found.unconfirmed_count) == (9, 13, 10)
    complete = measuring.zones(journal, 10.0, 1.9, all_acknowledge=True)
    assert complete is not None
    assert complete.fully_to == 19
    assert measuring.zones(Journal(), 10.0, 1.9, all_acknowledge=False) is None


def test_each_ledger_is_acknowledged_up_to_its_last_entry() -> None:
    acks = [ack(0, 1.0), ack(3, 1.0), ack(5, 1.0, ledger_id=9), ack(2, 1.0)]
    assert measuring.last_acknowledged(acks) == [(1, 3), (9, 5)]


def test_a_counter_of_a_client_that_was_killed_is_unknown() -> None:
    started = {"kind": "load_started", "at": 1.0, "sent": 5}
    ended = {"kind": "load_ended", "at": 2.0, "sent": 12}
    assert measuring.grown(Journal((), (started, ended)), "sent") == 7.0
    assert measuring.grown(Journal((), (started,)), "sent") == 0.0
