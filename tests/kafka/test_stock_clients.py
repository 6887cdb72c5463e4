"""Tests of stock clients and Kafka's own tools with Quire."""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import broker_in_thread
from tests.kafka.endpoint import Endpoint
from tests.kafka.every_client import SCENARIOS
from tests.kafka.fetching import TEST_TIMEOUT_S, UNAVAILABLE
from tests.kafka.parameters import parameters
from tests.kafka.scenario import Scenario

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with broker_in_thread("quire") as found:
        yield found


@pytest.mark.parametrize("scenario", parameters(SCENARIOS))
def test_stock_client(endpoint: Endpoint, scenario: Scenario) -> None:
    try:
        scenario.run(endpoint)
    except UNAVAILABLE as error:
        pytest.skip(str(error))
