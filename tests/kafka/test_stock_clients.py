"""Tests of stock clients and Kafka's own tools with Quire."""

from collections.abc import Iterator

import pytest

from benchmarks.peers.maven import PeerUnavailableError
from tests.kafka.brokers import BrokerInThread
from tests.kafka.every_client import SCENARIOS
from tests.kafka.scenario import Scenario, UnavailableError


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BrokerInThread("quire") as found:
        yield found


@pytest.mark.timeout(900)  # Kafka Streams verifies for minutes, and npm may have to build
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.title for each in SCENARIOS])
def test_stock_client(address: str, scenario: Scenario) -> None:
    try:
        scenario.run(address)
    except (UnavailableError, PeerUnavailableError) as error:
        pytest.skip(str(error))
