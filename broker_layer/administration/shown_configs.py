"""Settings of topics and brokers in the form that Kafka's tools expect.

Leaves the list of settings to `topic_config_table.py`, and the answers to `config_admin.py`.

Source: KIP-226 (sources and synonyms), KIP-569 (types and documentation).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from broker_layer.control.control_config import ControlConfig
from broker_layer.log.topic_config_table import (
    DEFINITIONS,
    REPLICATION_FACTOR,
    ConfigDefinition,
    ConfigType,
)
from broker_layer.log.topic_configs import (
    TopicDefaults,
    is_settable,
    log_config,
    replication_factor,
)


class ResourceType(IntEnum):
    """Kind of resource that has settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Origin of a value, with Kafka's numbers."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One setting in an answer. `synonyms` are pairs (value, source); the first one applies."""

    name: str
    value: str | None
    source: ConfigSource
    kind: ConfigType
    meaning: str
    is_read_only: bool
    synonyms: tuple[tuple[str | None, ConfigSource], ...]


BROKER_NAMES: Final = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "min.insync.replicas": "min.insync.replicas",
    "replica.lag.time.max.ms": "replica.lag.time.max.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Map from a topic's setting to the broker's setting that is its default."""
KAFKA_RELEASE: Final = "3.9"
"""Release of Kafka that brokers name: the last one with ZooKeeper, in which consoles look for the
release in the settings of a broker. Without one they hide quotas, and replace all settings of a
topic to change one.
"""


def topic_rows(stored: Mapping[str, str], defaults: TopicDefaults) -> list[ConfigRow]:
    """Return all settings of a topic."""
    config = log_config(stored, defaults)
    derived = {"write.quorum": config.quorum.write, "ack.quorum": config.quorum.ack}
    rows = []
    for name, definition in DEFINITIONS.items():
        if definition.is_old and name not in stored:
            continue
        synonyms = tuple(_synonyms(definition, stored, defaults))
        value, source = synonyms[0]
        if value is None:
            value = str(derived[name])
        rows.append(
            ConfigRow(
                name,
                value,
                source,
                definition.kind,
                definition.meaning,
                not is_settable(definition, is_strict=defaults.is_strict),
                synonyms,
            )
        )
    rows.append(_replication_row(stored, defaults))
    return sorted(rows, key=lambda row: row.name)


def broker_rows(broker_id: int, config: ControlConfig) -> list[ConfigRow]:
    """Return the settings of a broker that its clients may read; clients cannot alter them."""
    defaults = config.topic_defaults
    rows = [
        _broker_row("broker.id", ConfigType.INT, str(broker_id)),
        _broker_row(
            "auto.create.topics.enable", ConfigType.BOOLEAN, str(config.creates_topics).lower()
        ),
        _broker_row("num.partitions", ConfigType.INT, str(defaults.partitions)),
        _broker_row("default.replication.factor", ConfigType.INT, str(defaults.replication_factor)),
        _broker_row("offsets.topic.num.partitions", ConfigType.INT, str(config.offsets_partitions)),
        _broker_row(
            "transaction.state.log.num.partitions",
            ConfigType.INT,
            str(config.transaction_state_partitions),
        ),
        _broker_row("delete.topic.enable", ConfigType.BOOLEAN, "true"),
        _broker_row("inter.broker.protocol.version", ConfigType.STRING, KAFKA_RELEASE),
    ]
    for name, shown in BROKER_NAMES.items():
        definition = DEFINITIONS[name]
        synonyms = tuple(_synonyms(definition, {}, defaults))
        value, source = synonyms[0]
        rows.append(
            ConfigRow(
                shown,
                value,
                source,
                definition.kind,
                definition.meaning,
                is_read_only=True,
                synonyms=synonyms,
            )
        )
    return sorted(rows, key=lambda row: row.name)


def _synonyms(
    definition: ConfigDefinition, stored: Mapping[str, str], defaults: TopicDefaults
) -> Iterator[tuple[str | None, ConfigSource]]:
    if definition.name in stored:
        yield stored[definition.name], ConfigSource.DYNAMIC_TOPIC
    if definition.name in defaults.configs:
        yield defaults.configs[definition.name], ConfigSource.STATIC_BROKER
    yield definition.default, ConfigSource.DEFAULT


def _replication_row(stored: Mapping[str, str], defaults: TopicDefaults) -> ConfigRow:
    """Return the row of the replication factor. Its source is DEFAULT, so tools that copy the
    settings of topics leave it out.
    """
    value = str(replication_factor(stored, defaults))
    return ConfigRow(
        REPLICATION_FACTOR,
        value,
        ConfigSource.DEFAULT,
        ConfigType.INT,
        "Number of bookies that store each record. Set when the topic is created.",
        is_read_only=True,
        synonyms=((value, ConfigSource.DEFAULT),),
    )


def _broker_row(name: str, kind: ConfigType, value: str) -> ConfigRow:
    source = ConfigSource.STATIC_BROKER
    return ConfigRow(name, value, source, kind, "", is_read_only=True, synonyms=((value, source),))
