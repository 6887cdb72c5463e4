"""Names the bounds and intervals with which a broker controls topics.

Leaves the settings of topics to `topic_configs.py`, and reading these from a file to the process's
edge.
"""

from dataclasses import dataclass, field

from broker_layer.log.topic_configs import TopicDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """How one broker controls. Intervals are in seconds."""

    topic_defaults: TopicDefaults = field(default_factory=TopicDefaults)
    creates_topics: bool = True
    """Kafka's `auto.create.topics.enable`."""

    offsets_partitions: int = 16
    """Kafka's `offsets.topic.num.partitions`; counts when the topic is made, and never again."""

    transaction_state_partitions: int = 16
    """Kafka's `transaction.state.log.num.partitions`; as above."""

    take_overs_at_once: int = 64
    take_over_slot_s_max: float = 1.0
    """How long one of them keeps others from their turn: one that waits for a bookie goes on
    beside them."""

    take_over_pause_max_s: float = 5.0
    """Between attempts to take a partition over."""

    retention_interval_s: float = 60.0
    report_interval_s: float = 0.5
    """How often a change of the replicas in sync is looked for."""

    rebalance_interval_s: float = 10.0
    """How often partitions go back to their preferred brokers; 0: never by themselves."""

    settled_s: float = 30.0
    """How long a broker is up before it gets partitions back, or more of them."""

    rebalance_moves_max: int = 100
    """Partitions that one round moves."""

    assembly_s: float = 2.0
    """How long a controller waits for more brokers when none that is up leads anything: the whole
    cluster is being started."""

    erased_ledgers_per_s: float = 50.0
    """How fast the ledgers of deleted topics are deleted."""

    sweep_interval_s: float = 3600.0
    """How often ledgers are looked for that a leader created, and that no partition lists."""

    swept_ledgers_per_s: float = 200.0
    """How fast ledgers are looked at then."""
