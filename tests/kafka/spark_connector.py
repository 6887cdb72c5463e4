"""Scenarios of Spark's own Kafka connector, in a Spark of the same version.

Leaves their code to spark/SparkConnector.java, and Quire's own source and sink of topics to
`tests.spark`.
"""

import tempfile
from collections.abc import Callable
from typing import Final

from tests.kafka.endpoint import Endpoint
from tests.kafka.java_process import run_java
from tests.kafka.scenario import Scenario

PART: Final = "spark"
TIMEOUT_S: Final = 240.0
OPENED: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch"),
    *("sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
FLAGS: Final = ("-Xmx1g", *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED))


def scenario(name: str) -> Callable[[Endpoint], None]:
    """Return the function that runs one scenario of spark/SparkConnector.java."""

    def run(endpoint: Endpoint) -> None:
        with tempfile.TemporaryDirectory() as directory:
            run_java(
                "SparkConnector",
                *(name, endpoint.addresses, directory),
                part=PART,
                flags=FLAGS,
                timeout_s=TIMEOUT_S,
            )

    return run


SCENARIOS: Final = tuple(
    Scenario("Spark's connector", name, scenario(argument), is_long=True)
    for name, argument in (
        ("batch, both ways", "batch"),
        ("streams, both ways", "streaming"),
        ("read committed", "committed"),
    )
)
