"""Plan of one run, drawn from a seed: sizes, speeds, workloads, and fault rates.

Leaves the execution to the other modules of the simulation.

Invariants: equal seeds give equal plans. Within the budget, damage (bookies whose bytes are lost or
changed) stays below every ledger's ack quorum, or `min_in_sync`, so that any violation is a bug.
Source: assurance design, "Deterministic simulation" (swarm odds).
"""

import math
import random
from dataclasses import dataclass, replace
from typing import Final

from bookie.options import BookieOptions
from bookie.wire.batch import ENTRY_BYTES_MAX
from ledger_client import ClientConfig, Quorum
from tests.simulation import in_sync_plan, many_plan, repair_plan, restore_plan
from tests.simulation.chains import chain_plan
from tests.simulation.network import NetworkOdds
from tests.simulation.reach_plan import (
    NOTHING_MORE,
    Reach,
    draw_reach,
    with_faults,
    with_limits,
    with_room,
)
from tests.simulation.store import StoreOdds

KINDS: Final = (
    "kill_bookie",
    "power_cut",
    "pause_bookie",
    "cut_one_way",
    "cut_both_ways",
    "isolate_bookie",
    "break_connection",
    "stall_connection",
    "slow_disk",
    "fail_sync",
    "fill_disk",
    "stall_store",
    "expire_session",
    "suspend_session",
    "checkpoint",
    "clean",
    "kill_client",
    "pause_client",
    "restart_bookie",
    "take_over",
    "fail_write",
)
DAMAGE_KINDS: Final = ("flip_log_bit", "flip_index_bit", "wipe_disk", "old_disk")
BUDGETED_KINDS: Final = (*DAMAGE_KINDS, "start_copy", "lose_sector")
"""A copy may replace an original that died or lost its session."""
THEMES: Final[dict[str, tuple[str, ...]]] = {
    "anything": (),
    "takeovers": ("take_over", "checkpoint", "restart_bookie", "pause_client"),
    "crashes": ("kill_bookie", "power_cut", "restart_bookie", "checkpoint", "clean"),
    "metadata": ("stall_store", "expire_session", "suspend_session", "kill_bookie", "take_over"),
    "changes": ("pause_bookie", "isolate_bookie", "cut_one_way", "kill_bookie", "stall_connection"),
    "recoveries": ("isolate_bookie", "kill_bookie", "cut_both_ways", "take_over", "slow_disk"),
    "damage": ("kill_bookie", "checkpoint", "kill_client", *DAMAGE_KINDS),
    in_sync_plan.THEME: ("kill_bookie", "pause_bookie", "isolate_bookie", "slow_disk", "take_over"),
}
"""Groups of faults that act together. Faults drawn one by one would seldom coincide."""
LATER_KINDS: Final = {
    "die_unsynced": ("crashes", "takeovers"),
    "fence_unsynced": ("takeovers",),
    "fence_within": ("takeovers",),
    "full_sync": ("crashes",),
    "start_copy": ("damage",),
    "replace_leader": ("metadata",),
    "fail_build": ("recoveries",),
    "lose_sector": ("damage",),
}
"""Kinds with the themes to which they belong, drawn by a generator of their own: the rest of a
seed's plan is the same without them.
"""
LATER_SHARE: Final = 0.2
"""Share of the runs of other themes in which such a kind occurs."""
WRITING_THEMES: Final = ("takeovers", "changes", "metadata", "recoveries", in_sync_plan.THEME)
THEME_COUNT: Final = 12.0
"""Approximate number of faults of each kind of a run's theme."""
FAULT_EVERY_S_MIN: Final = 1.5
BUSY_S: Final = 1_200.0
"""Every run has as many faults as one of this length, in seconds."""
PATIENT_EVERY: Final = 9
"""One seed in this many is long and slow. It shares no divisor with the count of themes, so that
long runs occur in every theme.
"""
PATIENT_S: Final = 6_600.0
"""Length of a long run, in seconds: enough for failures that take minutes to show."""
ENDLESS_S: Final = 36_000.0
"""Deadline that no run reaches: a hanging call hangs to the end of the run, and is reported."""

QUORUMS: Final = (
    Quorum(3, 3, 2),
    Quorum(3, 3, 3),
    Quorum(3, 2, 2),
    Quorum(2, 2, 1),
    Quorum(2, 2, 2),
    Quorum(4, 3, 2),
    Quorum(3, 2, 1),
    Quorum(1, 1, 1),
    Quorum(5, 3, 2),
    Quorum(4, 4, 3),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """Kinds of clients, and their speed."""

    writers: int
    tailers: int
    rereaders: int
    recoverers: int
    deleters: int
    append_gap_s: float
    entries_per_ledger: int
    entry_bytes_max: int
    pending_max: int
    pause_between_s: float
    """Time between ledgers, reads and recoveries: most of a long run passes here."""
    takeover_share: float
    """Share of recoveries of ledgers that are being written."""
    password: bytes
    """Share of all ledgers of the run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of one run."""

    seed: int
    theme: str
    beyond_budget: bool
    bookie_count: int
    bookies_per_host: int
    """Disks of one machine, each with a separate bookie."""
    duration_s: float
    quorums: tuple[Quorum, ...]
    workload: Workload
    network: NetworkOdds
    store: StoreOdds
    disk_delay_s: float
    preallocates: bool
    fault_every_s: dict[str, float]
    """Kind -> mean seconds between two faults; kinds that do not occur are absent."""
    damage_max: int
    options: BookieOptions
    config: ClientConfig
    session_timeout_s: float
    pools_small_bodies: bool
    """Whether bookies lend receive buffers also to the small frames of the simulation."""
    chains: chain_plan.ChainWork | None = None
    """Clients of chains and claims, if there are any."""
    many: many_plan.ManyLedgers | None = None
    """Hundreds of open ledgers of one client, if there are any."""
    reach: Reach = NOTHING_MORE
    repair: repair_plan.RepairWork | None = None
    """Processes of repair, if there are any."""

    @property
    def ack_quorum_min(self) -> int:
        """Return the lowest ack quorum of any ledger."""
        return min(quorum.ack for quorum in self.quorums)


def theme_of(seed: int) -> str:
    """Return the theme of a run: the group of faults that it has most of."""
    return list(THEMES)[seed % len(THEMES)]


def make_plan(seed: int, *, beyond_budget: bool = False) -> Plan:
    """Draw the plan of a seed."""
    rng = random.Random(f"plan {seed} {beyond_budget}")
    is_patient = seed % PATIENT_EVERY == PATIENT_EVERY - 1
    bookie_count = rng.choice((3, 4)) if is_patient else rng.choice((3, 4, 4, 5, 5, 6))
    theme = theme_of(seed)
    ack_min = 2 if theme == "damage" else 1  # otherwise no disk may be damaged
    fitting = [
        quorum for quorum in QUORUMS if quorum.ensemble <= bookie_count and quorum.ack >= ack_min
    ]
    quorums = in_sync_plan.with_in_sync(
        _quorums(fitting, rng), seed, theme, bookie_count, least=ack_min
    )
    duration_s = PATIENT_S if is_patient else rng.choice((20.0, 40.0, 80.0, 160.0, 300.0))
    chains = chain_plan.draw_chains(seed, theme, duration_s)
    duration_s = chain_plan.with_duration(duration_s, chains)
    budget = min(in_sync_plan.losses_tolerated(quorum) for quorum in quorums)
    faults = _faults(rng, theme, duration_s, beyond_budget=beyond_budget, budget=budget)
    later = _later_faults(random.Random(f"later faults {seed}"), theme, duration_s)
    faults = restore_plan.with_restores(faults, seed, theme, duration_s, is_beyond=beyond_budget)
    may_damage = budget > 0 or beyond_budget
    reach = draw_reach(seed)
    faults = with_faults(faults, seed, theme, duration_s)
    repair = repair_plan.draw_repair(seed)
    faults = repair_plan.with_faults(faults, repair, duration_s)
    faults |= {k: every_s for k, every_s in later.items() if may_damage or k not in BUDGETED_KINDS}
    many = many_plan.draw_many(seed, theme, duration_s)
    faults = many_plan.with_leaves(faults, many, duration_s)
    return Plan(
        seed=seed,
        theme=theme,
        beyond_budget=beyond_budget,
        bookie_count=bookie_count,
        bookies_per_host=random.Random(f"hosts {seed}").choice((1, 1, 2)),
        duration_s=duration_s,
        quorums=quorums,
        workload=_beside(_workload(rng, theme, duration_s), chains),
        network=_network(rng),
        store=chain_plan.with_lost_answers(
            _store(rng, theme, random.Random(f"watches {seed}")), chains
        ),
        disk_delay_s=rng.choice((0.0005, 0.002, 0.01)),
        preallocates=rng.random() < 0.3,
        fault_every_s=chain_plan.with_faults(faults, chains, duration_s),
        damage_max=bookie_count if beyond_budget else budget,
        options=with_room(_options(rng, duration_s, random.Random(f"memory {seed}")), reach),
        config=with_limits(
            many_plan.with_limits(in_sync_plan.with_patience(_config(rng), seed), many), reach, seed
        ),
        session_timeout_s=rng.choice((4.0, 10.0, 20.0)),
        pools_small_bodies=rng.random() < 0.5,
        chains=chains,
        many=many,
        reach=reach,
        repair=repair,
    )


def _quorums(fitting: list[Quorum], rng: random.Random) -> tuple[Quorum, ...]:
    chosen = []
    for quorum in rng.sample(fitting, rng.randint(1, min(2, len(fitting)))):
        stripes = rng.choice((1, 3, 16, 1024))
        chosen.append(Quorum(quorum.ensemble, quorum.write, quorum.ack, stripes))
    return tuple(chosen)


def _workload(rng: random.Random, theme: str, duration_s: float) -> Workload:
    gap_s = rng.choice((0.0, 0.001, 0.01, 0.05))
    is_patient = duration_s >= PATIENT_S
    # Writers are always within a ledger: these faults then hit one.
    is_long = theme in WRITING_THEMES and not is_patient
    # Much data is written, and much of it deleted, so that there is work for moving and cleaning.
    is_full = theme == "crashes" and not is_patient
    return Workload(
        writers=1 if is_patient else rng.randint(1, 3),
        tailers=rng.randint(0, 1 if is_patient else 2),
        rereaders=rng.randint(0, 1),
        recoverers=1 if is_patient else rng.randint(1, 2),
        deleters=1 if is_full else rng.choice((0, 0, 1)),
        append_gap_s=rng.choice((0.05, 0.2, 0.5)) if is_long else gap_s,
        entries_per_ledger=200 if is_long else rng.choice((3, 20, 60)),
        entry_bytes_max=4_000 if is_full else rng.choice((40, 400, 4_000)),
        pending_max=rng.choice((1, 8, 40)),
        pause_between_s=duration_s / rng.choice((120, 240) if is_full else (30, 60, 120)),
        takeover_share=0.8 if theme == "recoveries" else rng.choice((0.0, 0.3, 0.8)),
        password=rng.choice((b"", b"", b"a secret password")),
    )


def _beside(workload: Workload, chains: chain_plan.ChainWork | None) -> Workload:
    """Return the clients beside those of chains: few, since each run has a limited length."""
    if chains is None:
        return workload
    return replace(workload, writers=1, tailers=0, rereaders=0, recoverers=1)


def _network(rng: random.Random) -> NetworkOdds:
    return NetworkOdds(
        delay_s=rng.choice((0.0002, 0.001, 0.005)),
        slow_share=rng.choice((0.0, 0.0, 0.001, 0.02)),
        slow_delay_s=rng.choice((0.05, 0.5, 3.0)),
        split_share=rng.choice((0.0, 0.05, 0.3)),
        never_seen_share=rng.choice((0.0, 0.3, 1.0)),
    )


def _store(rng: random.Random, theme: str, watches_rng: random.Random) -> StoreOdds:
    is_rough = theme == "metadata"
    return StoreOdds(
        delay_s=rng.choice((0.001, 0.005, 0.02)),
        slow_share=rng.choice((0.02, 0.1) if is_rough else (0.0, 0.0, 0.02, 0.1)),
        slow_delay_s=rng.choice((0.5, 3.0, 15.0)),
        lost_share=rng.choice((0.1, 0.3) if is_rough else (0.0, 0.0, 0.05, 0.2)),
        refused_share=rng.choice((0.0, 0.0, 0.02)),
        stale_share=rng.choice((0.0, 0.3, 0.9)),
        stale_changes_max=rng.choice((3, 20, 100)),
        watch_delay_s=rng.choice((0.001, 0.05, 1.0)),
        slow_watch_share=rng.choice((0.0, 0.1)),
        lost_watch_share=watches_rng.choice((0.05, 0.3) if is_rough else (0.0, 0.0, 0.02, 0.2)),
        reconnect_delay_s_max=watches_rng.choice((0.1, 1.0, 8.0)),
    )


def _faults(
    rng: random.Random, theme: str, duration_s: float, *, beyond_budget: bool, budget: int
) -> dict[str, float]:
    rates = {}
    roughness = rng.choice((0.3, 1.0, 3.0))
    busy_s = min(duration_s, BUSY_S)
    for kind in KINDS:
        draw = rng.random()
        if draw < 0.4:
            wanted = math.exp(rng.uniform(math.log(0.5), math.log(12.0))) * roughness
            rates[kind] = max(FAULT_EVERY_S_MIN, busy_s / wanted)
    for kind in THEMES[theme]:
        if kind not in DAMAGE_KINDS:
            rates[kind] = max(FAULT_EVERY_S_MIN, busy_s / (THEME_COUNT * rng.uniform(0.5, 1.5)))
    for kind in DAMAGE_KINDS:
        draw = rng.random()
        if (budget or beyond_budget) and (draw < 0.35 or kind in THEMES[theme]):
            rates[kind] = duration_s / rng.uniform(1.0, 4.0)
    return rates


def _later_faults(rng: random.Random, theme: str, duration_s: float) -> dict[str, float]:
    rates = {}
    for kind, themes in LATER_KINDS.items():
        draw, wanted = rng.random(), THEME_COUNT * rng.uniform(0.5, 1.5)
        if theme in themes or draw < LATER_SHARE:
            rates[kind] = max(FAULT_EVERY_S_MIN, min(duration_s, BUSY_S) / wanted)
    return rates


def _options(rng: random.Random, duration_s: float, memory_rng: random.Random) -> BookieOptions:
    return BookieOptions(
        segment_bytes_max=rng.choice((2**16, 2**18)),
        recent_bytes_max=rng.choice((0, 2**14, 2**20)),
        reserve_bytes_min=2**12,
        reserve_share=0.0,
        queue_bytes_max=2**20,
        collect_interval_s=max(2.0, duration_s / rng.choice((2, 5, 20))),
        collect_reads_per_s=50,
        drain_timeout_s=rng.choice((0.5, 5.0)),
        hot_ledgers_max=memory_rng.choice((1, 3, 100)),
        tombstones_max=memory_rng.choice((0, 2, 100_000)),
        feed_age_h=memory_rng.choice((0.01, 24.0)),
    )


def _config(rng: random.Random) -> ClientConfig:
    # A window, its entries, and its share of the limit of unanswered bytes.
    window = rng.choice(((8_000, 30, 24_000), (2**20, 200_000, 2**28)))
    return ClientConfig(
        delay_ensemble_change=rng.random() < 0.25,
        run_degraded=rng.random() < 0.3,
        add_timeout_s=rng.choice((1.0, 5.0)),
        append_deadline_s=rng.choice((10.0, 30.0, ENDLESS_S)),
        batch_entries_max=rng.choice((1, 4, 4096)),
        window_bytes_max=window[0],
        window_entries_max=window[1],
        unanswered_bytes_max=window[2],
        entry_bytes_max=min(window[2] // 2, ENTRY_BYTES_MAX),
        quarantine_s=rng.choice((2.0, 60.0)),
        suspicions_per_minute_max=rng.choice((6, 60)),
        long_poll_s=rng.choice((1.0, 10.0)),
        call_timeout_s=rng.choice((10.0, 30.0, ENDLESS_S)),
        read_timeout_s=rng.choice((1.0, 5.0)),
    )
