"""Scenarios of kafkajs, a client in JavaScript that shares no code with the others.

Leaves what they do to node/scenarios.mjs.

Format of the cache: one directory for each text of package.json, with what npm installed.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.peers.maven import default_cache
from tests.kafka.scenario import Scenario, UnavailableError, check

SOURCES: Final = Path(__file__).parent / "node"
INSTALL_TIMEOUT_S: Final = 300
RUN_TIMEOUT_S: Final = 150
TAIL_CHARACTERS: Final = 1500


def installed() -> Path:
    """Install its packages unless the cache has them; return where the scenarios are.

    Raises UnavailableError.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise UnavailableError("node and npm are not installed")
    package = SOURCES / "package.json"
    digest = hashlib.sha256(package.read_bytes()).hexdigest()[:12]
    home = default_cache() / f"node-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    complete = home / "complete"
    if not complete.exists():
        shutil.copy(package, home)
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = _run(command, home, INSTALL_TIMEOUT_S)
        if done.returncode != 0:
            raise UnavailableError(f"npm did not fetch it: {done.stdout[-TAIL_CHARACTERS:]}")
        complete.touch()
    shutil.copy(SOURCES / "scenarios.mjs", home)  # beside what it imports
    return home


def _run(command: list[str], directory: Path, timeout_s: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def scenario(name: str) -> Callable[[str], None]:
    """Return what runs one of node/scenarios.mjs."""

    def run(address: str) -> None:
        done = _run(["node", "scenarios.mjs", name, address], installed(), RUN_TIMEOUT_S)
        check(done.returncode == 0, f"ended with {done.returncode}", done.stdout[-TAIL_CHARACTERS:])

    return run


SCENARIOS: Final = tuple(
    Scenario("kafkajs", name, scenario(name))
    for name in ("produce", "idempotent", "group", "transactions", "admin")
)
