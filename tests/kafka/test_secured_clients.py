"""Tests of stock clients and Kafka's own tools with a secure cluster of Quire."""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import SecureEndpoints, secure_brokers_in_thread
from tests.kafka.endpoint import Endpoint
from tests.kafka.fetching import TEST_TIMEOUT_S, UNAVAILABLE
from tests.kafka.parameters import parameters
from tests.kafka.scenario import Scenario
from tests.kafka.secured_scenarios import CERTIFICATE, LOGIN, titled

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)


@pytest.fixture(scope="module")
def endpoints() -> Iterator[SecureEndpoints]:
    with secure_brokers_in_thread() as found:
        yield found


@pytest.mark.parametrize("scenario", parameters(titled(LOGIN)))
def test_client_with_a_password(endpoints: SecureEndpoints, scenario: Scenario) -> None:
    run_or_skip(scenario, endpoints.login)


@pytest.mark.parametrize("scenario", parameters(titled(CERTIFICATE)))
def test_client_with_a_certificate(endpoints: SecureEndpoints, scenario: Scenario) -> None:
    run_or_skip(scenario, endpoints.certificate)


def run_or_skip(scenario: Scenario, endpoint: Endpoint) -> None:
    try:
        scenario.run(endpoint)
    except UNAVAILABLE as error:
        pytest.skip(str(error))
