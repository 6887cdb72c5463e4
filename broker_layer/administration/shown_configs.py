"""Settings of topics and brokers in the form that Kafka's tools expect.

Leaves the list of settings to `topic_config_table.py`, and the answers to `config_admin.py`.

Source: KIP-226 (sources and synonyms), KIP-569 (types and documentation).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from metadata.brokers.broker_registration import Listener
from quire.addresses import join_address


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
    synonyms: tuple[tuple[str | None, ConfigSource], ...]
    is_read_only: bool = True


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
        row = _defined_row(name, definition, stored, defaults)
        is_read_only = not is_settable(definition, is_strict=defaults.is_strict)
        value = str(derived[name]) if row.value is None else row.value
        rows.append(replace(row, value=value, is_read_only=is_read_only))
    # Its source is DEFAULT, so tools that copy the settings of topics leave it out.
    factor = str(replication_factor(stored, defaults))
    meaning = "Number of bookies that store each record. Set when the topic is created."
    rows.append(_row(REPLICATION_FACTOR, ConfigType.INT, factor, ConfigSource.DEFAULT, meaning))
    return sorted(rows, key=lambda row: row.name)


def broker_rows(
    broker_id: int, config: ControlConfig, listeners: Sequence[Listener]
) -> list[ConfigRow]:
    """Return the settings of a broker that its clients may read; clients cannot alter them."""
    defaults = config.topic_defaults
    addresses = ",".join(map(_address, listeners))
    own = (
        ("advertised.listeners", ConfigType.STRING, addresses),
        ("broker.id", ConfigType.INT, str(broker_id)),
        ("auto.create.topics.enable", ConfigType.BOOLEAN, str(config.creates_topics).lower()),
        ("num.partitions", ConfigType.INT, str(defaults.partitions)),
        ("default.replication.factor", ConfigType.INT, str(defaults.replication_factor)),
        ("offsets.topic.num.partitions", ConfigType.INT, str(config.offsets_partitions)),
        (
            "transaction.state.log.num.partitions",
            ConfigType.INT,
            str(config.transaction_state_partitions),
        ),
        ("delete.topic.enable", ConfigType.BOOLEAN, "true"),
        ("inter.broker.protocol.version", ConfigType.STRING, KAFKA_RELEASE),
    )
    rows = [_row(name, kind, value, ConfigSource.STATIC_BROKER) for name, kind, value in own]
    rows += [
        _defined_row(shown, DEFINITIONS[name], {}, defaults) for name, shown in BROKER_NAMES.items()
    ]
    return sorted(rows, key=lambda row: row.name)


def _address(listener: Listener) -> str:
    return f"{listener.name}://{join_address(listener.host, listener.port)}"


def _row(
    name: str, kind: ConfigType, value: str, source: ConfigSource, meaning: str = ""
) -> ConfigRow:
    return ConfigRow(name, value, source, kind, meaning, synonyms=((value, source),))


def _defined_row(
    shown: str, definition: ConfigDefinition, stored: Mapping[str, str], defaults: TopicDefaults
) -> ConfigRow:
    synonyms = tuple(_synonyms(definition, stored, defaults))
    value, source = synonyms[0]
    return ConfigRow(shown, value, source, definition.kind, definition.meaning, synonyms)


def _synonyms(
    definition: ConfigDefinition, stored: Mapping[str, str], defaults: TopicDefaults
) -> Iterator[tuple[str | None, ConfigSource]]:
    if definition.name in stored:
        yield stored[definition.name], ConfigSource.DYNAMIC_TOPIC
    if definition.name in defaults.configs:
        yield defaults.configs[definition.name], ConfigSource.STATIC_BROKER
    yield definition.default, ConfigSource.DEFAULT
