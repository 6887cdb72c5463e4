"""All scenarios of all clients, including those that must be fetched."""

from typing import Final

from tests.kafka import (
    connect_workers,
    count_stream,
    java_client,
    kafka_tools,
    kcat_client,
    node_clients,
    python_clients,
    spark_connector,
    streams_tests,
)
from tests.kafka.scenario import Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *python_clients.SCENARIOS,
    *kcat_client.SCENARIOS,
    *node_clients.SCENARIOS,
    *java_client.SCENARIOS,
    *kafka_tools.SCENARIOS,
    *streams_tests.SCENARIOS,
    *count_stream.SCENARIOS,
    *connect_workers.SCENARIOS,
    *spark_connector.SCENARIOS,
)
