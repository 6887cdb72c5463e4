"""Tests of stock Python clients with the broker of a local cluster.

There is one broker: of two, one may receive a new topic after the other has announced it, and
clients that send one request then wait for long. `make test-kafka` runs the same scenarios with two
brokers.
"""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import broker_in_thread
from tests.kafka.endpoint import Endpoint
from tests.kafka.python_clients import SCENARIOS
from tests.kafka.scenario import Scenario


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with broker_in_thread("quire", brokers=1) as found:
        yield found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.title for scenario in SCENARIOS])
def test_stock_client(endpoint: Endpoint, scenario: Scenario) -> None:
    scenario.run(endpoint)
