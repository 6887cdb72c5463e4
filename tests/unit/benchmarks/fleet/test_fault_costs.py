"""The cost of one fault in each configuration, to the tenth of a second and the entry."""

import pytest

from benchmarks.fleet.configurations import BY_NAME
from benchmarks.fleet.history import Fault, FaultKind
from benchmarks.fleet.results import figures
from tests.support.benchmarks.fleet.small_fleet import (
    CHANGE_S,
    NO_FAULTS,
    ONE,
    RECOVERY_S,
    WRITTEN_BEFORE,
    crash,
    disk_loss,
    machines,
    pause,
    simulation,
    with_options,
)

NAMES = list(BY_NAME)
AT_S = 1000.0
WRITTEN = WRITTEN_BEFORE + round(AT_S * ONE.write_rate)
DETECT_S = 0.5
SHORT_S = 6.0
"""Time before a spare would replace the member."""
ZOOKEEPER_GONE = Fault(AT_S - 10, FaultKind.ZOOKEEPER, 0, 60.0)
CLIENT_CRASH = Fault(AT_S, FaultKind.CLIENT_CRASH, 0, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_without_faults_all_is_available_and_nothing_is_copied(name: str) -> None:
    world = simulation(name, NO_FAULTS, with_options(ledger_hours=5)).run()
    found = figures(world, 1)
    assert (found.append_availability, found.read_availability) == (1, 1)
    assert (found.repaired_gib, found.caught_up_gib, found.change_count) == (0, 0, 0)
    assert (found.lost_gib_hours, found.short_gib_hours, found.slow_share) == (0, 0, 0)
    # The last one began five hours before the end.
    assert world.seats[0].ledger.end(world.now) == 5 * 3600 * ONE.write_rate


@pytest.mark.parametrize(
    ("name", "outage_s", "changes"),
    [
        ("all-of-3", DETECT_S + CHANGE_S, 1),
        (
            "majority-3",
            CHANGE_S,
            1,
        ),  # acknowledged without the member, until the change begins (5.2)
        ("fixed-majority-5", 0, 0),
        ("4-of-4-ack-3", CHANGE_S, 1),
        ("all-of-2", DETECT_S + CHANGE_S, 1),
        ("fixed-2", SHORT_S, 0),  # the ledger waits for its members
        ("in-sync-3", DETECT_S + 2 * CHANGE_S, 2),  # the member leaves, and comes back
    ],
)
def test_a_pause(name: str, outage_s: float, changes: int) -> None:
    world = simulation(name, [pause(machines(name)[0], AT_S, SHORT_S)]).run()
    assert world.measures.outage_s == pytest.approx(outage_s)
    assert world.measures.change_count == changes
    assert world.measures.repaired_entries == 0


def test_a_pause_shorter_than_suspicion_changes_nothing() -> None:
    world = simulation("all-of-3", [pause(machines("all-of-3")[0], AT_S, 0.3)]).run()
    assert world.measures.outage_s == pytest.approx(0.3)
    assert world.measures.change_count == 0


def test_entries_missed_in_a_pause_are_at_the_ack_quorum_until_it_ends() -> None:
    world = simulation("majority-3", [pause(machines("majority-3")[0], AT_S, 30)]).run()
    entries = DETECT_S * ONE.write_rate
    expected = entries / 2 * DETECT_S + entries * (30 - DETECT_S)
    assert world.existing.entry_seconds[2] == pytest.approx(expected)
    assert world.existing.entry_seconds[:2] == [0, 0]
    assert world.measures.caught_up_entries == 0  # the entries were in the connections


def test_entries_missed_in_a_crash_are_copied_to_the_bookie() -> None:
    world = simulation("majority-3", [crash(machines("majority-3")[0], AT_S, 30)]).run()
    assert world.measures.caught_up_entries == DETECT_S * ONE.write_rate
    fixed = simulation("fixed-majority-5", [crash(machines("fixed-majority-5")[0], AT_S, 30)])
    assert fixed.run().measures.caught_up_entries == 30 * ONE.write_rate


def test_an_in_sync_member_counts_again_once_it_has_caught_up() -> None:
    run = simulation("in-sync-3", [pause(machines("in-sync-3")[0], AT_S, SHORT_S)])
    metadata = run.run().seats[0].ledger.metadata
    missed_s = SHORT_S + ONE.rejoin_s - DETECT_S - CHANGE_S
    assert run.world.measures.caught_up_entries == int(missed_s * ONE.write_rate)
    assert len(metadata.fragments) == 3
    assert set(metadata.in_sync_members) == set(metadata.fragments[0].ensemble)


@pytest.mark.parametrize("spare_after_s", [10, 1000])
def test_in_sync_mode_refuses_below_its_minimum(spare_after_s: float) -> None:
    first, second, _ = machines("in-sync-3")
    faults = [crash(first, AT_S, 100), crash(second, AT_S + 5, 40)]
    options = with_options(spare_after_s=spare_after_s)
    world = simulation("in-sync-3", faults, options).run()
    # The second member cannot leave: appends wait for its return, or until a spare has caught up.
    copy_s = WRITTEN * ONE.entry_bytes / ONE.copy_bytes_per_s
    is_spared = spare_after_s < 40
    waited_s = DETECT_S + spare_after_s - 5 + copy_s if is_spared else 40
    assert world.measures.longest_outage_s == pytest.approx(waited_s, abs=0.1)


def test_in_sync_mode_replaces_an_absent_member_by_a_spare() -> None:
    world = simulation("in-sync-3", [crash(machines("in-sync-3")[0], AT_S, 50_000)]).run()
    metadata = world.seats[0].ledger.metadata
    assert len(metadata.in_sync_members) == 3
    written = WRITTEN + (ONE.spare_after_s - CHANGE_S) * ONE.write_rate
    assert world.measures.caught_up_entries == int(written)
    assert world.measures.repaired_entries == 0  # the spare replaced it in the older fragments too


@pytest.mark.parametrize("name", ["all-of-3", "majority-3", "all-of-2", "in-sync-3"])
def test_a_change_waits_for_zookeeper(name: str) -> None:
    faults = [ZOOKEEPER_GONE, crash(machines(name)[0], AT_S, 5000)]
    world = simulation(name, sorted(faults)).run()
    begins_s = AT_S + (DETECT_S if name == "majority-3" else 0)
    assert world.measures.longest_outage_s == pytest.approx(AT_S + 50 - begins_s, abs=0.1)


def test_a_fixed_majority_does_not_need_zookeeper() -> None:
    faults = [ZOOKEEPER_GONE, crash(machines("fixed-majority-5")[0], AT_S, 5000)]
    assert simulation("fixed-majority-5", sorted(faults)).run().measures.outage_s == 0


def test_a_client_crash_has_the_same_cost_in_every_configuration() -> None:
    outages = [simulation(name, [CLIENT_CRASH]).run().measures.outage_s for name in NAMES]
    assert outages == [pytest.approx(ONE.takeover_s + RECOVERY_S)] * len(NAMES)


@pytest.mark.parametrize(
    ("name", "is_decided"),
    [("all-of-3", True), ("majority-3", False), ("fixed-majority-5", True), ("in-sync-3", True)],
)
def test_a_recovery_needs_enough_responding_members(name: str, is_decided: bool) -> None:
    first, second, *_ = machines(name)
    faults = [crash(first, AT_S, 300), crash(second, AT_S, 300), CLIENT_CRASH]
    world = simulation(name, faults).run()
    assert world.measures.recovery_count == 1
    assert world.measures.undecided_count == (not is_decided)
    assert world.measures.longest_undecided_s == (0 if is_decided else 300 - ONE.takeover_s)
    waited_s = ONE.takeover_s if is_decided else 300
    assert world.measures.longest_outage_s == pytest.approx(waited_s, abs=1)


def test_a_hopeless_recovery_is_abandoned() -> None:
    first, second, _ = machines("majority-3")
    faults = [disk_loss(first, AT_S), disk_loss(second, AT_S), CLIENT_CRASH]
    world = simulation("majority-3", faults, with_options(give_up_hours=2.0)).run()
    assert world.measures.given_up_count == 1
    assert world.measures.longest_undecided_s == 2 * 3600


@pytest.mark.parametrize("name", NAMES)
def test_entries_lost_by_all_members_are_lost(name: str) -> None:
    faults = [disk_loss(machine, AT_S) for machine in machines(name)]
    world = simulation(name, faults).run()
    assert world.existing.lost_entries == WRITTEN
    assert list(world.existing.lost_ledgers) == [world.seats[0].ledger.number]


@pytest.mark.parametrize("name", ["all-of-3", "all-of-2", "majority-3"])
def test_the_copies_of_a_lost_disk_are_repaired(name: str) -> None:
    world = simulation(name, [disk_loss(machines(name)[0], AT_S)]).run()
    slack = DETECT_S * ONE.write_rate if name == "majority-3" else 0
    assert world.measures.repaired_entries == WRITTEN + slack
    assert world.existing.lost_entries == 0
    replicas = BY_NAME[name].replica_count
    waited_s = ONE.urgent_after_s if replicas == 2 else ONE.lost_after_s
    workers = ONE.bookies - 1
    # One copy: the part of the ceiling of its target that one worker of all may use.
    copied_s = WRITTEN * ONE.entry_bytes / (ONE.bookie_bytes_per_s / workers)
    at_risk_s = ONE.repair_detect_s + waited_s + copied_s
    assert world.existing.entry_seconds[replicas - 1] == pytest.approx(
        WRITTEN * at_risk_s, rel=0.001
    )


def test_repair_skips_a_fragment_that_is_being_written() -> None:
    run = simulation("fixed-majority-5", [crash(machines("fixed-majority-5")[0], AT_S, 3000)])
    world = run.run()
    assert world.measures.repaired_entries == 0
    assert world.measures.caught_up_entries == 3000 * ONE.write_rate


def test_a_fixed_member_that_lost_its_disk_is_replaced_by_hand() -> None:
    world = simulation("fixed-2", [disk_loss(machines("fixed-2")[0], AT_S)]).run()
    assert world.measures.outage_s == pytest.approx(ONE.operator_hours * 3600 + CHANGE_S)


def test_reads_fail_while_no_copy_is_available() -> None:
    first, second = machines("all-of-2")
    faults = [crash(first, AT_S, 100), crash(second, AT_S + 60, 100)]
    world = simulation("all-of-2", faults).run()
    # From the second crash to the first return, everything written before the first crash.
    assert world.readable.entry_seconds[0] == pytest.approx(40 * WRITTEN)


def test_a_slow_bookie_delays_only_configurations_that_need_its_response() -> None:
    for name, waits_s in (("all-of-3", 600), ("majority-3", 0), ("in-sync-3", 600)):
        fault = Fault(AT_S, FaultKind.SLOW, machines(name)[0], 600)
        assert simulation(name, [fault]).run().measures.slow_s == pytest.approx(waits_s)


def test_a_failed_rack_removes_one_member_of_each_ledger() -> None:
    rack = machines("all-of-3")[0] % ONE.racks
    world = simulation("all-of-3", [Fault(AT_S, FaultKind.RACK, rack, 60)]).run()
    assert world.measures.change_count == 1
    assert world.measures.outage_s == pytest.approx(DETECT_S + CHANGE_S)


def test_without_a_spare_a_suspect_is_cleared() -> None:
    world = simulation("all-of-3", [pause(0, AT_S, 30)], with_options(bookies=3, racks=3)).run()
    assert world.measures.outage_s == pytest.approx(30)
    assert world.measures.change_count == 0


def test_without_a_spare_the_next_ledger_waits_for_the_bookie() -> None:
    run = simulation("all-of-3", [crash(0, AT_S, 30)], with_options(bookies=3, racks=3))
    world = run.run()
    assert world.measures.outage_s == pytest.approx(30)
    assert world.measures.ledgers_created == 3  # the one before the measured time was the first
