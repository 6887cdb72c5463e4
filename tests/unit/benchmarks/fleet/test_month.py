"""Complete histories of faults: conserved bytes, consistent indices, the same output for a seed."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.fleet.assumptions import HOUR_S, Assumptions
from benchmarks.fleet.configurations import BY_NAME
from benchmarks.fleet.ledgers import Hold, Ledger
from benchmarks.fleet.results import RunFigures, figures
from benchmarks.fleet.running import run_one
from benchmarks.fleet.simulation import Simulation
from benchmarks.fleet.world import World
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from tests.support.benchmarks.fleet.small_fleet import crash, simulation

NAMES = list(BY_NAME)
ROUGH = Assumptions(
    bookies=9,
    racks=3,
    ledgers=6,
    clients=3,
    days=2,
    ledger_hours=5,
    retention_hours=20,
    crashes=30,
    restart_s=900,
    disk_losses=5,
    pauses=100,
    slow_periods=20,
    rack_failures=2,
    zookeeper_outages=30,
    zookeeper_outage_s=300,
    client_crashes=20,
)
CALM = Assumptions(
    bookies=8,
    racks=4,
    ledgers=20,
    clients=4,
    days=1,
    ledger_hours=2,
    repair_rate=0,
    repair_rate_per_bookie=0,
    repair_rate_per_source=0,
    worker_rate=1e6,
)
GONE_AFTER_S = CALM.repair_detect_s + CALM.lost_after_s


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    assert run_one(name, ROUGH, 3) == run_one(name, ROUGH, 3)
    assert run_one(name, ROUGH, 3).values() != run_one(name, ROUGH, 4).values()


@pytest.mark.parametrize("name", NAMES)
def test_indices_agree_with_the_ledgers_at_any_time(name: str) -> None:
    run = Simulation(BY_NAME[name], ROUGH, 5)
    for world in hours(run):
        check_indices(world)
        check_seats(world)
        check_trackers(world)
    found = figures(run.run(), 5)
    assert found.change_count + found.recovery_count > 0
    assert 0 < found.append_availability < 1
    assert found.longest_outage_s <= found.outage_s_per_ledger * ROUGH.ledgers
    below = found.lost_gib_hours + found.one_copy_gib_hours + found.short_gib_hours
    assert 0 <= below <= 2 * found.stored_gib_hours


def test_the_history_is_common_to_all_configurations() -> None:
    """Figures that do not depend on the configuration are the same: dead writers, lost bookies."""
    worlds = [Simulation(BY_NAME[name], ROUGH, 5).run() for name in NAMES]
    assert len({tuple(world.bookies.lost) for world in worlds}) == 1
    assert len({tuple(world.bookies.on_machine) for world in worlds}) == 1
    assert len(worlds[0].bookies.lost) > 3


@pytest.mark.parametrize("name", ["all-of-3", "majority-3", "4-of-4-ack-3"])
@pytest.mark.long
def test_repair_copies_the_entries_of_the_lost_bookie(name: str) -> None:
    down_s, at_s = 6 * HOUR_S, 7200.0
    run = simulation(name, [crash(0, at_s, down_s)], CALM)
    agenda, world = run.world.agenda, run.world
    bookie_id = world.bookies.on_machine[0]
    agenda.run_until(at_s + GONE_AFTER_S)
    held = sum(of_closed_fragments(ledger, bookie_id, world.now) for ledger in held_by(world))
    before = world.measures.repaired_entries
    assert (held > 10_000, before) == (True, 0)
    agenda.run_until(at_s + GONE_AFTER_S + 60)
    assert world.measures.repaired_entries == held
    # Only open ledgers, which repair skips (9.1), still name it.
    assert all(ledger.closed_s is None for ledger in held_by(world, bookie_id))


def test_a_bookie_that_returns_in_time_is_not_copied() -> None:
    world = simulation("all-of-3", [crash(0, 7200, GONE_AFTER_S - 1)], CALM).run()
    assert world.measures.repaired_entries == 0


@pytest.mark.long
def test_more_crashes_mean_less_availability() -> None:
    def mean_outage_s(name: str, rate: float) -> float:
        assumptions = replace(ROUGH, crashes=rate)
        return sum(run_one(name, assumptions, seed).outage_s_per_ledger for seed in range(4)) / 4

    for name in ("all-of-3", "fixed-2"):
        few, more, many = (mean_outage_s(name, rate) for rate in (0, 20, 100))
        assert few < more < many


def test_more_lost_disks_mean_more_data_at_risk() -> None:
    def mean(rate: float) -> float:
        assumptions = replace(ROUGH, disk_losses=rate)
        runs: list[RunFigures] = [run_one("all-of-2", assumptions, seed) for seed in range(4)]
        return sum(run.one_copy_gib_hours for run in runs)

    assert 0 == mean(0) < mean(3) < mean(20)


# -- what is true at any time --------------------------------------------------------------------


def hours(run: Simulation) -> Iterator[World]:
    for hour in range(1, int(ROUGH.end_s // HOUR_S)):
        run.world.agenda.run_until(hour * HOUR_S + 0.7)
        yield run.world


def held_by(world: World, bookie_id: BookieId | None = None) -> list[Ledger]:
    chosen = world.held_by.values() if bookie_id is None else [world.held_by[bookie_id]]
    return list({ledger.number: ledger for held in chosen for ledger in held.values()}.values())


def of_closed_fragments(ledger: Ledger, bookie_id: BookieId, now: float) -> int:
    ranges = ledger.ranges(now)
    closed = ranges if ledger.closed_s is not None else ranges[:-1]
    return sum(end - first for f, first, end in closed if bookie_id in f.ensemble)


def check_indices(world: World) -> None:
    for bookie_id, ledgers in world.held_by.items():
        assert all(each.metadata.names(bookie_id) for each in ledgers.values())
        assert not any(each.is_deleted for each in ledgers.values())
    for ledger in held_by(world):
        for fragment in ledger.metadata.fragments:
            assert all(ledger.number in world.held_by[bookie] for bookie in fragment.ensemble)
        assert all(ledger.number in world.lacking[gap] for gap in ledger.gaps)
        assert (ledger.metadata.state is LedgerState.CLOSED) == (ledger.closed_s is not None)
    for bookie_id, seats in world.written_by.items():
        assert all(bookie_id in seat.ensemble for seat in seats.values())


def check_seats(world: World) -> None:
    for seat in world.seats:
        metadata = seat.ledger.metadata
        quorum = metadata.quorum_of(metadata.last_fragment)
        answering = sum(world.bookies.answers(bookie) for bookie in seat.ensemble)
        may_run = seat.hold is Hold.NONE and answering >= quorum.ack_quorum
        assert (seat.stopped_s is None) == may_run
        assert (seat.ledger.running_since is None) != may_run
        ends = [end for _, _, end in seat.ledger.ranges(world.now)]
        assert ends == sorted(ends)


def check_trackers(world: World) -> None:
    """Check that every ledger with too few copies is tracked."""
    for ledger in held_by(world):
        counts = ledger.copies(world.now, world.bookies.lost)
        if any(counts[: world.existing.enough]):
            assert world.existing.has(ledger)
        if ledger.copies(world.now, world.bookies.silent)[0]:
            assert world.readable.has(ledger)
