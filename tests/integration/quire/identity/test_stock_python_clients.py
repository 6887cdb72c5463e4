"""Stock Python clients with a secure cluster: over SASL_SSL, and with a certificate.

Leaves clients that must be fetched, and most scenarios, to `tests.kafka`.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kafka.brokers import SecureEndpoints, secure_brokers_in_thread
from tests.kafka.connection_checks import with_kafka_python
from tests.kafka.endpoint import Login
from tests.kafka.python_clients import SCENARIOS
from tests.kafka.scenario import Scenario

TITLES = (
    "confluent-kafka: every compression",
    "confluent-kafka: transactions",
    "aiokafka: transactions",
    "kafka-python: transactions",
)
CHOSEN = [scenario for scenario in SCENARIOS if scenario.title in TITLES]


@pytest.fixture(scope="module")
def endpoints() -> Iterator[SecureEndpoints]:
    with secure_brokers_in_thread(1) as found:
        yield found


@pytest.mark.parametrize("scenario", CHOSEN, ids=[scenario.title for scenario in CHOSEN])
@pytest.mark.parametrize("identity", ["login", "certificate"])
def test_stock_client(endpoints: SecureEndpoints, identity: str, scenario: Scenario) -> None:
    scenario.run(endpoints.login if identity == "login" else endpoints.certificate)


def test_a_refused_client_leaves_no_thread(endpoints: SecureEndpoints) -> None:
    """`tests.leaks` looks for the thread, which kafka-python leaves if its client is not closed."""
    login = endpoints.login.identity
    assert isinstance(login, Login)
    wrong = replace(login, password="a wrong password")
    with pytest.raises(AssertionError, match="Unable to bootstrap"):
        with_kafka_python(replace(endpoints.login, identity=wrong))


def test_every_title_is_that_of_a_scenario() -> None:
    assert len(CHOSEN) == len(TITLES)
