"""Each ledger is checked when it is due."""

from random import Random

from ledger_client.writing.watchdog import CheckSchedule
from metadata.ids import LedgerId


def taken(schedule: CheckSchedule, now: float) -> list[LedgerId]:
    found = []
    while (ledger_id := schedule.take(now)) is not None:
        found.append(ledger_id)
    return found


def test_the_first_due_ledger_comes_first() -> None:
    schedule, rng = CheckSchedule(), Random(1)
    due = {LedgerId(number): rng.random() for number in range(100)}
    for ledger_id, due_s in due.items():
        schedule.add(ledger_id, due_s)
    assert taken(schedule, -1.0) == []
    wanted = sorted(due, key=lambda ledger_id: due[ledger_id])
    now = due[wanted[30]]
    assert taken(schedule, now) == wanted[:31]
    assert taken(schedule, 1.0) == wanted[31:]
    assert taken(schedule, 1.0) == []


def test_the_earlier_of_two_times_counts() -> None:
    schedule = CheckSchedule()
    for due_s in (5.0, 2.0, 7.0):
        schedule.add(LedgerId(1), due_s)
    assert taken(schedule, 1.9) == []
    assert taken(schedule, 10.0) == [1]
    schedule.add(LedgerId(1), 7.0)
    assert taken(schedule, 6.0) == []
    assert taken(schedule, 7.0) == [1]


def test_ledgers_that_are_due_at_the_same_time_keep_their_order() -> None:
    schedule = CheckSchedule()
    for number in (3, 1, 2):
        schedule.add(LedgerId(number), 1.0)
    assert taken(schedule, 1.0) == [3, 1, 2]
