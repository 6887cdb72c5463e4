"""Plan of one run with topics, drawn from a seed: sizes, settings, users, and faults.

Leaves the plans of bookies, network and metadata service to `tests.simulation.plan`'s types.

Invariants: equal seeds give equal plans. No synced data of a bookie is ever lost, so that any
violation is a bug.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from bookie.options import BookieOptions
from ledger_client import ClientConfig, Quorum
from tests.simulation import repair_plan
from tests.simulation.network import NetworkOdds
from tests.simulation.plan import Plan, Workload
from tests.simulation.store import StoreOdds

FAULTS: Final = (
    "kill_broker",
    "restart_broker",
    "pause_broker",
    "isolate_broker",
    "maroon_broker",
    "expire_broker",
    "suspend_broker",
    "cut_client",
    "break_connection",
    "kill_user",
    "pause_user",
    "kill_bookie",
    "pause_bookie",
    "isolate_bookie",
    "stall_store",
    "elect",
    "move_coordinator",
    "restart_all",
)
THEMES: Final[dict[str, tuple[str, ...]]] = {
    "leaders": ("kill_broker", "pause_broker", "expire_broker", "elect"),
    "zombies": ("maroon_broker", "isolate_broker", "suspend_broker", "pause_broker"),
    "ledgers": ("kill_bookie", "pause_bookie", "isolate_bookie", "kill_broker"),
    "coordinators": ("restart_all", "kill_broker", "expire_broker", "maroon_broker"),
    "users": ("kill_user", "pause_user", "cut_client", "break_connection"),
    "members": (
        "move_coordinator",
        "kill_broker",
        "maroon_broker",
        "pause_user",
        "kill_user",
        "cut_client",
    ),
    "deletions": ("kill_broker", "expire_broker", "suspend_broker", "elect", "stall_store"),
}
GROUP_TOPIC: Final = "tasks"
CLASSIC_GROUP: Final = "workers-classic"
CONSUMER_GROUP: Final = "workers-newer"
GROUPS_WITH_MEMBERS: Final = (CLASSIC_GROUP, CONSUMER_GROUP)
DELAYS_S: Final = (2, 5)
"""Delays until a bookie counts as lost: they are down for 5 s at most."""
SMALL_WINDOW_SHARE: Final = 0.3
SMALL_WINDOWS: Final = (1, 3)
"""Numbers of entries that are sent and not confirmed, where it is small."""
ALL_BOOKIES_SHARE: Final = 0.5
"""Share of the runs with the theme of ledgers in which all bookies pause at once."""
ALL_BOOKIES_COUNT: Final = 2.0
"""Approximate number of times that they do."""
THEME_COUNT: Final = 5.0
"""Approximate number of faults of each kind of a run's theme."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Plan of one topic."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TopicWork:
    """Kinds of users of the topics, and their speed."""

    producers: int
    readers: int
    transactors: int
    committers: int
    idempotent_share: float
    commit_share: float
    list_share: float
    seek_share: float
    value_bytes: int
    gap_s: float
    poll_ms: int
    transaction_timeout_ms: int
    shares_transactional_ids: bool
    careless_producers: int
    """Producers that do not wait until records are committed: acks 0 or 1."""
    trimmers: int
    recreators: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Groups with members; at most one of each kind."""

    classic_members: int
    consumer_members: int
    static_share: float
    session_timeout_ms: int
    rebalance_timeout_ms: int
    slow_share: float
    """Share of rebalances in which a member releases partitions slowly."""
    stale_share: float
    """Share of commits with an identity that is over."""
    leave_share: float

    @property
    def has_members(self) -> bool:
        """Return whether there are any members."""
        return self.classic_members + self.consumer_members > 0


@dataclass(frozen=True, slots=True)
class TopicsPlan:
    """Plan of one run."""

    seed: int
    theme: str
    base: Plan
    broker_count: int
    replicas: int
    state_partitions: int
    segment_bytes: int
    state_segment_bytes: int
    topics: tuple[TopicPlan, ...]
    group_topic: TopicPlan
    """Topic that groups divide among their members; no records are written to it."""
    work: TopicWork
    groups: GroupPlan
    fault_every_s: dict[str, float]
    midway_share: float
    """Share of coordinators' snapshots and loads in the middle of which a fault occurs."""
    retention_interval_s: float
    rebalance_interval_s: float


def theme_of(seed: int) -> str:
    """Return the theme of a run: the group of faults that it has most of."""
    return list(THEMES)[seed % len(THEMES)]


def make_topics_plan(seed: int) -> TopicsPlan:
    """Draw the plan of a seed."""
    rng = random.Random(f"topics plan {seed}")
    theme = theme_of(seed)
    duration_s = rng.choice((20.0, 30.0, 40.0))
    bookie_count = rng.choice((3, 4))
    replicas = rng.choice((2, 3, 3))
    repair = repair_plan.draw_repair(seed, DELAYS_S)
    return TopicsPlan(
        seed=seed,
        theme=theme,
        base=replace(_base(rng, seed, theme, duration_s, bookie_count), repair=repair),
        broker_count=3,
        replicas=replicas,
        state_partitions=rng.choice((1, 2)),
        segment_bytes=rng.choice((3_000, 16_000)),
        state_segment_bytes=rng.choice((1_500, 4_000, 100_000)),
        topics=_topics(rng, replicas),
        group_topic=TopicPlan(GROUP_TOPIC, 4, ()),
        work=_work(rng, theme),
        groups=_groups(rng, theme),
        fault_every_s=repair_plan.with_faults(
            _faults(rng, theme, duration_s) | _all_bookies(seed, theme, duration_s),
            repair,
            duration_s,
        ),
        midway_share=_midway_share(seed, theme),
        retention_interval_s=rng.choice((3.0, 10.0)),
        rebalance_interval_s=rng.choice((8.0, 20.0)),
    )


def _topics(rng: random.Random, replicas: int) -> tuple[TopicPlan, ...]:
    configs = {
        "replica.lag.time.max.ms": str(rng.choice((1_000, 3_000))),
        "segment.ms": str(rng.choice((1_500, 5_000, 60_000))),
        "min.insync.replicas": str(rng.choice((1, min(2, replicas)))),
    }
    if rng.random() < 0.4:
        configs["retention.bytes"] = str(rng.choice((6_000, 40_000)))
    if rng.random() < 0.3:
        configs["retention.ms"] = str(rng.choice((8_000, 20_000)))
    if rng.random() < 0.3 and replicas == 3:
        configs = {**configs, "replication.mode": "quorum", "ack.quorum": "2"}
    if rng.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    return (TopicPlan("orders", rng.choice((1, 2, 3)), tuple(configs.items())),)


def _work(rng: random.Random, theme: str) -> TopicWork:
    is_light = theme in ("members", "deletions")
    has_state = theme in ("coordinators", "zombies", "users") or rng.random() < 0.5
    return TopicWork(
        producers=1 if is_light else rng.randint(1, 2),
        readers=1 if is_light else rng.randint(1, 2),
        transactors=rng.choice((1, 2)) if has_state and not is_light else 0,
        committers=rng.choice((1, 2)) if has_state and not is_light else 0,
        idempotent_share=0.8,
        commit_share=rng.choice((0.5, 0.8)),
        list_share=rng.choice((0.1, 0.4)),
        seek_share=rng.choice((0.0, 0.05)),
        value_bytes=rng.choice((60, 400, 1_500)),
        gap_s=rng.choice((0.2, 0.5, 1.0)),
        poll_ms=rng.choice((200, 1_000)),
        transaction_timeout_ms=rng.choice((5_000, 20_000)),
        shares_transactional_ids=rng.random() < 0.4,
        careless_producers=1 if theme in ("leaders", "ledgers") and rng.random() < 0.6 else 0,
        trimmers=1 if theme == "deletions" or rng.random() < 0.2 else 0,
        recreators=1 if theme == "deletions" or rng.random() < 0.1 else 0,
    )


def _groups(rng: random.Random, theme: str) -> GroupPlan:
    classic, consumer = 0, 0
    if theme == "members":
        classic, consumer = rng.choice(((3, 0), (0, 3), (2, 2)))
    elif rng.random() < 0.15:
        classic, consumer = rng.choice(((2, 0), (0, 2)))
    session_timeout_ms = rng.choice((2_000, 4_000))
    return GroupPlan(
        classic_members=classic,
        consumer_members=consumer,
        static_share=rng.choice((0.0, 0.5)),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rng.choice((2_500, 5_000)),
        slow_share=rng.choice((0.0, 0.2)),
        stale_share=rng.choice((0.1, 0.3)),
        leave_share=rng.choice((0.02, 0.06)),
    )


def _faults(rng: random.Random, theme: str, duration_s: float) -> dict[str, float]:
    rates = {}
    for kind in FAULTS:
        if rng.random() < 0.3:
            rates[kind] = max(2.0, duration_s / rng.uniform(0.5, 3.0))
    for kind in THEMES[theme]:
        if rng.random() < 0.7:
            rates[kind] = max(2.0, duration_s / (THEME_COUNT * rng.uniform(0.5, 1.5)))
    return rates


def _all_bookies(seed: int, theme: str, duration_s: float) -> dict[str, float]:
    rng = random.Random(f"all bookies {seed}")  # the other plans of the seed stay as they are
    is_drawn = theme == "ledgers" and rng.random() < ALL_BOOKIES_SHARE
    return {"pause_all_bookies": duration_s / ALL_BOOKIES_COUNT} if is_drawn else {}


def _midway_share(seed: int, theme: str) -> float:
    rng = random.Random(f"midway {seed}")  # the other plans of the seed stay as they are
    has_most = theme in ("coordinators", "members")
    return rng.choice((0.0, 0.1, 0.3)) if has_most else rng.choice((0.0, 0.0, 0.05))


def _base(rng: random.Random, seed: int, theme: str, duration_s: float, bookie_count: int) -> Plan:
    session_timeout_s = rng.choice((2.0, 4.0))
    return Plan(
        seed=seed,
        theme=theme,
        beyond_budget=False,
        bookie_count=bookie_count,
        bookies_per_host=1,
        duration_s=duration_s,
        quorums=(Quorum(3, 3, 2),),
        workload=Workload(0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0.0, 0.0, b""),
        network=NetworkOdds(
            delay_s=rng.choice((0.0005, 0.002, 0.01)),
            slow_share=rng.choice((0.0, 0.005, 0.02)),
            slow_delay_s=rng.choice((0.05, 0.5)),
            split_share=rng.choice((0.0, 0.05)),
            never_seen_share=rng.choice((0.0, 0.3)),
        ),
        store=StoreOdds(
            delay_s=rng.choice((0.001, 0.005)),
            slow_share=rng.choice((0.0, 0.0, 0.05)),
            slow_delay_s=rng.choice((0.5, 2.0)),
            lost_share=rng.choice((0.0, 0.0, 0.1)),
            refused_share=rng.choice((0.0, 0.0, 0.02)),
            stale_share=rng.choice((0.0, 0.3)),
            stale_changes_max=rng.choice((3, 20)),
            watch_delay_s=rng.choice((0.001, 0.05, 0.5)),
            slow_watch_share=rng.choice((0.0, 0.1)),
            lost_watch_share=rng.choice((0.0, 0.0, 0.02)),
            reconnect_delay_s_max=rng.choice((0.1, 1.0)),
        ),
        disk_delay_s=rng.choice((0.0005, 0.002, 0.01)),
        preallocates=False,
        fault_every_s={},
        damage_max=0,
        options=BookieOptions(
            segment_bytes_max=2**18,
            recent_bytes_max=rng.choice((2**14, 2**20)),
            reserve_bytes_min=2**12,
            reserve_share=0.0,
            queue_bytes_max=2**20,
            collect_interval_s=20.0,
            collect_reads_per_s=50,
            drain_timeout_s=1.0,
        ),
        config=_config(seed, session_timeout_s),
        session_timeout_s=session_timeout_s,
        pools_small_bodies=False,
    )


def _config(seed: int, session_timeout_s: float) -> ClientConfig:
    """Return the configuration that `broker_layer.main` gives its ledger client, except for time
    limits, and in some runs for a window so small that batches and markers wait for room in it.
    """
    config = ClientConfig(append_deadline_s=600.0, session_timeout_s=session_timeout_s)
    rng = random.Random(f"window {seed}")
    if rng.random() < SMALL_WINDOW_SHARE:
        config = replace(config, window_entries_max=rng.choice(SMALL_WINDOWS))
    return replace(
        config,
        add_timeout_s=1.0,
        read_timeout_s=1.0,
        call_timeout_s=5.0,
        quarantine_s=2.0,
    )
