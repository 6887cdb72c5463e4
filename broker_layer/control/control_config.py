"""Limits and intervals of a broker's control of topics.

Leaves the settings of topics to `topic_configs.py`, and reading the configuration file to the
process's entry module.
"""

from dataclasses import dataclass, field

from broker_layer.log.topic_configs import TopicDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """Settings of one broker's control of topics. Intervals are in seconds."""

    topic_defaults: TopicDefaults = field(default_factory=TopicDefaults)
    creates_topics: bool = True
    """Kafka's `auto.create.topics.enable`."""

    offsets_partitions: int = 16
    """Kafka's `offsets.topic.num.partitions`; used only when the topic is created."""

    transaction_state_partitions: int = 16
    """Kafka's `transaction.state.log.num.partitions`; used only when the topic is created."""

    take_overs_at_once: int = 64
    """Maximum number of takeovers that hold a slot at the same time."""

    take_over_slot_s_max: float = 1.0
    """Maximum time that a takeover holds a slot. A longer one, such as one that waits for a bookie,
    continues without a slot."""

    take_over_pause_max_s: float = 5.0
    """Maximum pause between attempts to take a partition over."""

    retention_interval_s: float = 60.0
    report_interval_s: float = 0.5
    """Interval between checks for a change of the in-sync replicas."""

    rebalance_interval_s: float = 10.0
    """Interval between automatic moves of partitions to their preferred brokers; 0 for never."""

    settled_s: float = 30.0
    """Time that a broker must be up before it gets its partitions back, or additional ones."""

    rebalance_moves_max: int = 100
    """Maximum number of partitions that one round moves."""

    assembly_s: float = 2.0
    """Time that a controller waits for more brokers when no live broker leads a partition: then
    the complete cluster is starting."""

    erased_ledgers_per_s: float = 50.0
    """Maximum rate at which the ledgers of deleted topics are deleted."""

    sweep_interval_s: float = 3600.0
    """Interval between searches for ledgers that a leader created but no partition lists."""

    swept_ledgers_per_s: float = 200.0
    """Maximum rate at which that search checks ledgers."""
