"""Tests of what a person sees if a stock client has a wrong password, no login or no certificate.

kafka-python closes a connection that ends before it reads what came last, and aiokafka reports no
alert of TLS: they say only that the connection was closed.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.kafka.brokers import SecureEndpoints, secure_brokers_in_thread
from tests.kafka.connection_checks import CHECKS
from tests.kafka.endpoint import Certificate, Endpoint, Login
from tests.kafka.fetching import TEST_TIMEOUT_S, UNAVAILABLE

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

BY_CLIENT: Final = {check.client: check for check in CHECKS}
REASON: Final = "authentication failed: check the user and the password"
WRONG_PASSWORD: Final = {
    "confluent-kafka": REASON,
    "kafka-python": "Unable to bootstrap",
    "aiokafka": REASON,
    "kafkajs": REASON,
    "Java client": f"SaslAuthenticationException: {REASON}",
    "Kafka's tools": f"Error while executing topic command : {REASON}",
}
NO_CERTIFICATE: Final = {
    "confluent-kafka": "alert certificate required",
    "kafka-python": "alert certificate required",
    "aiokafka": "closed",
    "kafkajs": "alert certificate required",
    "Java client": "Received fatal alert: certificate_required",
    "Kafka's tools": "Received fatal alert: certificate_required",
}
NO_LOGIN: Final = {
    "confluent-kafka": "Broker transport failure",
    "aiokafka": "closed",
    "kafkajs": "Closed connection",
}


@pytest.fixture(scope="module")
def endpoints() -> Iterator[SecureEndpoints]:
    with secure_brokers_in_thread(1) as found:
        yield found


@pytest.mark.parametrize("client", BY_CLIENT)
def test_clients_connect(endpoints: SecureEndpoints, client: str) -> None:
    """The others fail because of what is wrong with them."""
    run_or_skip(client, endpoints.login)
    run_or_skip(client, endpoints.certificate)


@pytest.mark.parametrize("client", WRONG_PASSWORD)
def test_a_wrong_password(endpoints: SecureEndpoints, client: str) -> None:
    login = endpoints.login.identity
    assert isinstance(login, Login)
    wrong = replace(login, password="a wrong password")
    text = refusal(client, replace(endpoints.login, identity=wrong))
    assert WRONG_PASSWORD[client] in text
    assert "a wrong password" not in text


@pytest.mark.parametrize("client", NO_CERTIFICATE)
def test_no_certificate(endpoints: SecureEndpoints, client: str) -> None:
    endpoint = without_identity(endpoints, endpoints.certificate)
    assert NO_CERTIFICATE[client] in refusal(client, endpoint)


@pytest.mark.parametrize("client", NO_LOGIN)
def test_no_login(endpoints: SecureEndpoints, client: str) -> None:
    endpoint = without_identity(endpoints, endpoints.login)
    assert NO_LOGIN[client] in refusal(client, endpoint)


def without_identity(endpoints: SecureEndpoints, listener: Endpoint) -> Endpoint:
    """Return the endpoint of a client that uses TLS, and has nothing to show."""
    own = endpoints.certificate.identity
    assert isinstance(own, Certificate)
    return replace(listener, identity=replace(own, certificate=None, key=None))


def run_or_skip(client: str, endpoint: Endpoint) -> None:
    try:
        BY_CLIENT[client].run(endpoint)
    except UNAVAILABLE as error:
        pytest.skip(str(error))


def refusal(client: str, endpoint: Endpoint) -> str:
    """Return what a person sees."""
    with pytest.raises(AssertionError) as refused:
        run_or_skip(client, endpoint)
    return str(refused.value)
