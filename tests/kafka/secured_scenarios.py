"""Scenarios that run over TLS too: with a password, and with a certificate.

A part of all, chosen by what a client does with connections: bootstrap, connections to each leader
and to coordinators, administration. Leaves the scenarios to their modules.
"""

from collections.abc import Sequence
from typing import Final

from tests.kafka import security_tools
from tests.kafka.every_client import SCENARIOS
from tests.kafka.scenario import Scenario

LOGIN: Final = (
    *("confluent-kafka: every compression", "confluent-kafka: large records"),
    *("confluent-kafka: group, KIP-848", "confluent-kafka: transactions"),
    *("confluent-kafka: admin: topics", "confluent-kafka: admin: groups"),
    *("aiokafka: every compression and acks", "aiokafka: group", "aiokafka: transactions"),
    *("kafka-python: every compression", "kafka-python: group", "kafka-python: transactions"),
    "kafka-python: administration",
    *("kcat: produce and consume", "kcat: listing"),
    *("kafkajs: produce", "kafkajs: transactions", "kafkajs: admin"),
    *("Confluent's JavaScript: produce", "Confluent's JavaScript: group"),
    *("Java client: every compression", "Java client: group, KIP-848"),
    *("Java client: transactions", "Java client: administration"),
    *("Kafka's tools: topics", "Kafka's tools: groups", "Kafka's tools: configs"),
    *("Kafka's tools: users", "Kafka's tools: console clients"),
    *("Kafka's tools: rights", "Kafka's tools: quotas"),
    *("Kafka Streams: a program that counts", "Kafka Connect: worker restarted and killed"),
)
CERTIFICATE: Final = (
    *("confluent-kafka: every compression", "confluent-kafka: group, classic"),
    *("aiokafka: group", "kafka-python: group"),
    "kcat: produce and consume",
    *("kafkajs: produce", "Confluent's JavaScript: produce"),
    *("Java client: transactions", "Java client: administration"),
    *("Kafka's tools: console clients", "Kafka's tools: rights"),
    *("Kafka Streams: a program that counts", "Kafka Connect: worker restarted and killed"),
)


def titled(titles: Sequence[str]) -> tuple[Scenario, ...]:
    """Return scenarios by title."""
    scenarios = {scenario.title: scenario for scenario in (*SCENARIOS, *security_tools.SCENARIOS)}
    return tuple(scenarios[title] for title in titles)
