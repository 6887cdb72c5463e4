"""Scenarios of kcat, a command based on librdkafka; it must be installed already."""

import shutil
import subprocess
from typing import Final

from tests.kafka.confluent_calls import new_topic
from tests.kafka.endpoint import Endpoint, properties_file
from tests.kafka.scenario import RECORDS, Scenario, UnavailableError, check, values_of

TIMEOUT_S: Final = 60
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def kcat(endpoint: Endpoint, *arguments: str, given: bytes = b"") -> bytes:
    """Run it to its end and return its output. Raises UnavailableError, AssertionError."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        raise UnavailableError("kcat is not installed")
    with properties_file(endpoint.librdkafka) as path:
        command = [program, "-F", path, *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    check(done.returncode == 0, f"ended with {done.returncode}", done.stderr[-500:])
    return done.stdout


def produce_and_consume(endpoint: Endpoint) -> None:
    """Produce lines with every compression, and print them again."""
    topic = new_topic(endpoint)
    for compression in COMPRESSIONS:
        given = b"\n".join(values_of())
        kcat(endpoint, "-P", "-t", topic, "-p", "0", "-z", compression, given=given)
    lines = kcat(endpoint, "-C", "-t", topic, "-o", "beginning", "-e", "-q").splitlines()
    check(lines == values_of() * len(COMPRESSIONS), f"{len(lines)} of {RECORDS} lines")


def listing(endpoint: Endpoint) -> None:
    """Show the cluster's metadata."""
    topic = new_topic(endpoint, 2)
    text = kcat(endpoint, "-L").decode()
    check(f'topic "{topic}" with 2 partitions' in text, text)


SCENARIOS: Final = (
    Scenario("kcat", "produce and consume", produce_and_consume),
    Scenario("kcat", "listing", listing),
)
