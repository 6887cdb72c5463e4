"""All scenarios of clients that are Python packages: these need no downloads."""

from typing import Final

from tests.kafka import aiokafka_client, confluent_client, kafka_python_client
from tests.kafka.scenario import Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *confluent_client.SCENARIOS,
    *aiokafka_client.SCENARIOS,
    *kafka_python_client.SCENARIOS,
)
