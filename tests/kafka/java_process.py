"""Runs one of Kafka's own tools, or our Java scenarios, to its end.

Leaves fetching them to `jars`.
"""

import asyncio
import functools
import json
import subprocess
from collections.abc import Sequence
from typing import Final

from benchmarks.peers.maven import JavaPeer
from tests.kafka.jars import kafka_jars
from tests.kafka.scenario import check

TOOL_TIMEOUT_S: Final = 120
TAIL_CHARACTERS: Final = 1500
FLAGS: Final = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@functools.cache
def jars() -> JavaPeer:
    """Fetch once in a run. Raises PeerUnavailableError."""
    return asyncio.run(kafka_jars())


def command_of(main: str, *arguments: str) -> list[str]:
    """Return the command line of a class."""
    java = jars()
    return [java.java, *FLAGS, "-cp", java.classpath, main, *arguments]


def run_java(main: str, *arguments: str) -> str:
    """Run a class to its end and return what it printed. Raises AssertionError if it ends badly."""
    done = subprocess.run(
        command_of(main, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    name = main.rpartition(".")[2]
    check(done.returncode == 0, f"{name} ended with {done.returncode}", _tail(done.stdout))
    return done.stdout


def events(output: str) -> Sequence[dict[str, object]]:
    """Return the JSON lines that a verifiable client printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _tail(output: str) -> str:
    return output[-TAIL_CHARACTERS:]
