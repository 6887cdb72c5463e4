"""Stock clients that are Python packages work with brokers of a local cluster."""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import BrokerInThread
from tests.kafka.python_clients import SCENARIOS
from tests.kafka.scenario import Scenario


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BrokerInThread("quire") as found:
        yield found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.title for each in SCENARIOS])
def test_stock_client(address: str, scenario: Scenario) -> None:
    scenario.run(address)
