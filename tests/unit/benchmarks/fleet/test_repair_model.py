"""The model of repair: who waits for how long, in which order, and at which speed."""

import pytest

from benchmarks.fleet.agenda import Agenda
from benchmarks.fleet.ledgers import Ledger, new_ledger
from benchmarks.fleet.repair_worker import Copy, RepairWorker, rates_of
from benchmarks.fleet.simulation import Simulation
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import QuorumSpec
from tests.support.benchmarks.fleet.small_fleet import (
    ONE,
    bookie,
    crash,
    disk_loss,
    machines,
    simulation,
    with_options,
)

AT_S = 1000.0
GIB = float(2**30)
ONE_QUORUM = QuorumSpec(3, 3, 3)
ENSEMBLE = (bookie(0), bookie(1), bookie(2))


def copy_to(
    target: BookieId, source: BookieId, left_bytes: float = GIB, ready_s: float = 0
) -> Copy:
    ledger = Ledger(new_ledger(1, ONE_QUORUM, ENSEMBLE, 0), 0, 0.0, 1.0)
    return Copy(ledger, EntryId(0), bookie(0), source, target, 1, left_bytes, ready_s)


def test_a_worker_uses_its_part_of_each_ceiling() -> None:
    one, two = copy_to(bookie(5), bookie(1)), copy_to(bookie(6), bookie(2))
    assert rates_of([one], ONE, 10) == [2.5e6]  # 25 MB/s to one bookie, by ten workers
    assert rates_of([one, two], ONE, 10) == [2.5e6, 2.5e6]  # 50 MB/s, by ten workers
    assert rates_of([one, one], ONE, 10) == [1.25e6, 1.25e6]
    assert rates_of([one, two, two], ONE, 10) == pytest.approx([5e6 / 3, 1.25e6, 1.25e6])
    free = with_options(repair_rate=0, repair_rate_per_bookie=0, repair_rate_per_source=0)
    assert rates_of([one, two], free, 10) == [233e6 / 2] * 2


def test_copies_of_one_worker_share_its_speed_and_end_in_turn() -> None:
    agenda = Agenda(0.0)
    ended: list[tuple[float, BookieId]] = []
    made = RepairWorker(agenda, ONE, lambda copy: ended.append((agenda.now, copy.target)))
    made.begin(copy_to(bookie(5), bookie(1), 25e6), 1)
    agenda.at(0.5, lambda: made.begin(copy_to(bookie(5), bookie(2), 12.5e6, ready_s=9), 1))
    agenda.run_until(20)
    # 12.5 MB alone, then both at 12.5 MB/s; the second is marked and swapped in after 9 s.
    assert ended == [(1.5, bookie(5)), (9.0, bookie(5))]


def test_a_last_copy_is_repaired_after_a_minute_and_others_after_ten() -> None:
    for name, waits_s in (("all-of-2", ONE.urgent_after_s), ("all-of-3", ONE.lost_after_s)):
        options = with_options(repair_rate=0, repair_rate_per_bookie=0, repair_rate_per_source=0)
        run = simulation(name, [disk_loss(machines(name)[0], AT_S)], options)
        agenda, measures = run.world.agenda, run.world.measures
        due_s = AT_S + ONE.repair_detect_s + waits_s
        agenda.run_until(due_s)
        assert measures.repaired_entries == 0
        agenda.run_until(due_s + 1)
        assert measures.repaired_entries > 0


def test_two_losses_of_three_make_the_last_copy_urgent() -> None:
    first, second, _ = machines("all-of-3")
    run = simulation("all-of-3", [disk_loss(first, AT_S), disk_loss(second, AT_S + 1)])
    run.world.agenda.run_until(AT_S + 1 + ONE.repair_detect_s + ONE.urgent_after_s + 1)
    copies = [copy for made in run_workers(run) for copy in made.copies]
    assert len(copies) == 1  # one worker repairs a ledger, one copy after the other
    assert run.run().existing.lost_entries == 0


def test_a_target_that_crashes_is_replaced() -> None:
    first = machines("all-of-3")[0]
    run = simulation("all-of-3", [disk_loss(first, AT_S)])
    due_s = AT_S + ONE.repair_detect_s + ONE.lost_after_s
    run.world.agenda.run_until(due_s + 1)
    (copy,) = [each for made in run_workers(run) for each in made.copies]
    machine = run.world.bookies.on_machine.index(copy.target)
    again = simulation(
        "all-of-3", [disk_loss(first, AT_S), crash(machine, due_s + 2, 50_000)]
    ).run()
    assert copy.target not in again.seats[0].ledger.metadata.fragments[0].ensemble
    assert again.measures.repaired_entries == copy.entries


def test_without_a_target_a_repair_waits_for_the_new_machine() -> None:
    options = with_options(bookies=4, racks=4, retention_hours=10)
    first, second, _ = machines("all-of-3", options)
    run = simulation("all-of-3", [disk_loss(first, AT_S), disk_loss(second, AT_S + 1)], options)
    measures = run.world.measures
    run.world.agenda.run_until(AT_S + 3.9 * 3600)
    before = measures.repaired_entries
    assert before > 0  # the spare took the place of the one
    run.run()
    assert measures.repaired_entries > 1.9 * before
    assert run.world.existing.lost_entries == 0


def run_workers(run: Simulation) -> list[RepairWorker]:
    return list(run._appending.repairing._workers.values())
