"""Scenarios of kcat, a command based on librdkafka; it must be installed already."""

import functools
import re
import shutil
import subprocess
from typing import Final

from tests.kafka.confluent_calls import new_topic
from tests.kafka.endpoint import Endpoint, Login, properties_file
from tests.kafka.scenario import RECORDS, Scenario, UnavailableError, check, values_of

TIMEOUT_S: Final = 60
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SCRAM_FROM: Final = (2, 6, 1)
"""The first librdkafka that repeats the nonce of SCRAM as RFC 5802 says; Kafka 4 needs it too."""


def kcat(endpoint: Endpoint, *arguments: str, given: bytes = b"") -> bytes:
    """Run it to its end and return its output. Raises UnavailableError, AssertionError."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        raise UnavailableError("kcat is not installed")
    version = librdkafka_version(program)
    if isinstance(endpoint.identity, Login) and version < SCRAM_FROM:
        shown = ".".join(map(str, version))
        raise UnavailableError(f"kcat has librdkafka {shown}, whose SCRAM Kafka 4 refuses too")
    with properties_file(endpoint.librdkafka) as path:
        command = [program, "-F", path, *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    check(done.returncode == 0, f"ended with {done.returncode}", done.stderr[-500:])
    return done.stdout


@functools.cache
def librdkafka_version(program: str) -> tuple[int, ...]:
    """Return the version of the library, for example (2, 0, 2)."""
    done = subprocess.run([program, "-V"], capture_output=True, text=True, check=True)
    found = re.search(r"librdkafka (\d+(?:\.\d+)*)", done.stdout)
    assert found is not None, done.stdout
    return tuple(map(int, found[1].split(".")))


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
