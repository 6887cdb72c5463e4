"""Stock clients that are Python packages work with the broker of a local cluster.

It is one broker: of two, one may hear of a new topic after the other told a client, and clients
that ask once then wait for long. `make test-kafka` runs the same scenarios with two brokers.
"""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import BrokerInThread
from tests.kafka.python_clients import SCENARIOS
from tests.kafka.scenario import Scenario


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BrokerInThread("quire", brokers=1) as found:
        yield found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.title for each in SCENARIOS])
def test_stock_client(address: str, scenario: Scenario) -> None:
    scenario.run(address)
