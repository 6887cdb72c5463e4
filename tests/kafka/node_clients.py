"""Scenarios of clients in JavaScript: kafkajs, and @confluentinc/kafka-javascript (librdkafka).

kafkajs shares no code with the other clients. Leaves the scenarios' code to node/scenarios.mjs and
node_confluent/scenarios.mjs.

Format of the cache: one directory for each text of package.json, with the packages that npm
installed. If Confluent's binary cannot be fetched, it is built from the source in its package. That
needs a C compiler and minutes, and uses the libraries of the machine: not each has zstd.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.peers.maven import default_cache
from tests.kafka.endpoint import Endpoint, json_file
from tests.kafka.fetching import FETCH_TIMEOUT_S, fetched_once, one_at_a_time, run_fetch
from tests.kafka.scenario import Scenario, UnavailableError, check

SOURCES: Final = Path(__file__).parent
RUN_TIMEOUT_S: Final = 150
TAIL_CHARACTERS: Final = 1500
HEADERS: Final = Path("/usr/include/node")
BUILDING: Final = {"CKJS_LINKING": "dynamic"}
"""Build librdkafka with the machine's libraries, not with libraries fetched as source."""


@fetched_once
def installed(part: str) -> Path:
    """Install its packages unless the cache has them; return the directory of the scenarios.

    Raises UnavailableError.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise UnavailableError("node and npm are not installed")
    package = SOURCES / part / "package.json"
    digest = hashlib.sha256(package.read_bytes()).hexdigest()[:12]
    home = default_cache() / f"{part}-{digest}"
    with one_at_a_time(part):
        home.mkdir(parents=True, exist_ok=True)
        complete = home / "complete"
        if not complete.exists():
            shutil.copy(package, home)
            _install(npm, home)
            complete.touch()
    # Next to the packages that it imports. Another worker may just read what it copied there.
    whole = Path(shutil.copy(SOURCES / part / "scenarios.mjs", home / f"copied-{os.getpid()}"))
    whole.rename(home / "scenarios.mjs")
    return home


def _install(npm: str, home: Path) -> None:
    headers = {"npm_config_nodedir": str(HEADERS.parents[1])} if HEADERS.exists() else {}
    command = [npm, "install", "--no-audit", "--no-fund"]
    done = run_fetch(command, home, {**BUILDING, **headers}, FETCH_TIMEOUT_S)
    if done.returncode != 0:
        raise UnavailableError(f"npm did not install it: {done.stdout[-TAIL_CHARACTERS:]}")


def _run_node(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["node", "scenarios.mjs", *arguments],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def scenario(part: str, name: str) -> Callable[[Endpoint], None]:
    """Return the function that runs one scenario of a directory's scenarios.mjs."""

    def run(endpoint: Endpoint) -> None:
        home = installed(part)
        settings = endpoint.kafkajs if part == "node" else {**endpoint.librdkafka}
        with json_file(settings) as path:
            done = _run_node(home, name, path)
        check(done.returncode == 0, f"ended with {done.returncode}", done.stdout[-TAIL_CHARACTERS:])

    return run


SCENARIOS: Final = (
    *(
        Scenario("kafkajs", name, scenario("node", name))
        for name in ("produce", "idempotent", "group", "transactions", "admin")
    ),
    *(
        # They are short unless its library must be built.
        Scenario("Confluent's JavaScript", name, scenario("node_confluent", name), is_long=True)
        for name in ("produce", "group", "transactions", "admin")
    ),
)
