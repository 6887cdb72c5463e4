"""Scenarios of Apache Kafka's Java client.

Leaves their code to java/StockClient.java and starting Java to `java_process`.
"""

from collections.abc import Callable
from typing import Final

from tests.kafka.endpoint import Endpoint, properties_file
from tests.kafka.java_process import run_java
from tests.kafka.scenario import Scenario


def scenario(name: str) -> Callable[[Endpoint], None]:
    """Return the function that runs one scenario of java/StockClient.java."""

    def run(endpoint: Endpoint) -> None:
        settings = {"bootstrap.servers": endpoint.addresses, **endpoint.java}
        with properties_file(settings) as path:
            run_java("StockClient", name, path)

    return run


SCENARIOS: Final = tuple(
    Scenario("Java client", name, scenario(argument))
    for name, argument in (
        ("every compression", "compression"),
        ("every acks", "acks"),
        ("seek by time", "seek"),
        ("too large", "too-large"),
        ("group, classic", "group-classic"),
        ("group, KIP-848", "group-newer"),
        ("transactions", "transactions"),
        ("administration", "admin"),
        ("describe a group, KIP-848", "describe"),
    )
)
