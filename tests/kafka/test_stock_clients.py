"""Stock clients and Kafka's own tools against Quire, and Quire's answers beside Kafka's."""

from collections.abc import Iterator

import pytest

from benchmarks.peers.maven import PeerUnavailableError
from tests.differential.__main__ import accepted, answers_of, differences, recorded
from tests.kafka.brokers import BrokerInThread, broker
from tests.kafka.every_client import SCENARIOS
from tests.kafka.scenario import Scenario, UnavailableError


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BrokerInThread("quire") as found:
        yield found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.title for each in SCENARIOS])
def test_stock_client(address: str, scenario: Scenario) -> None:
    try:
        scenario.run(address)
    except (UnavailableError, PeerUnavailableError) as error:
        pytest.skip(str(error))


@pytest.mark.timeout(600)
async def test_every_operation_is_answered_as_by_kafka() -> None:
    async with broker("quire", brokers=1) as address:
        run = await answers_of(address)
    left_out = {text.rpartition(": ")[0] for text in run.not_advertised}
    found = differences(run.answers, recorded(), left_out)
    assert [difference for difference in found if not accepted(difference)] == []
