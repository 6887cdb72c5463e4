"""Program in Go that makes the calls of Redpanda Console and kminion, with the client library that
both use.

Leaves its code to go/, and the versions of the library to go/go.mod.

Format of the cache: one directory for each text of the sources, with the program.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.peers.maven import default_cache
from tests.kafka.endpoint import Endpoint, json_file
from tests.kafka.fetching import FETCH_TIMEOUT_S, fetched_once, one_at_a_time, run_fetch
from tests.kafka.scenario import UnavailableError, check

SOURCES: Final = Path(__file__).parent / "go"
DOWNLOAD_TIMEOUT_S: Final = 120
RUN_TIMEOUT_S: Final = 180
TAIL_CHARACTERS: Final = 1500
OWN_GO: Final = {"GOTOOLCHAIN": "local"}
"""The Go that is installed: it fetches no other release of itself."""


def run_go_calls(endpoint: Endpoint, world: str) -> str:
    """Make the calls with the names in a file, and return what the program prints.

    Raises UnavailableError if it cannot be fetched, AssertionError if it fails.
    """
    program = built()
    with json_file(endpoint.kafkajs) as client:
        done = _run([str(program), client, world], RUN_TIMEOUT_S)
    check(done.returncode == 0, f"it ended with {done.returncode}", _tail(done.stdout))
    return done.stdout


@fetched_once
def built() -> Path:
    """Fetch its modules and build it, unless the cache has it. Raises UnavailableError."""
    go = shutil.which("go")
    if go is None:
        raise UnavailableError("Go is not installed")
    texts = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    digest = hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]
    program = default_cache() / f"consolecalls-{digest}" / "consolecalls"
    with one_at_a_time("consolecalls"):
        if not program.exists():
            _build(go, program)
    return program


def _build(go: str, program: Path) -> None:
    fetched = run_fetch([go, "mod", "download"], SOURCES, OWN_GO, DOWNLOAD_TIMEOUT_S)
    if fetched.returncode != 0:
        raise UnavailableError(f"Go did not fetch its modules: {_tail(fetched.stdout)}")
    program.parent.mkdir(parents=True, exist_ok=True)
    whole = program.with_suffix(f".{os.getpid()}")
    built = run_fetch([go, "build", "-o", str(whole), "."], SOURCES, OWN_GO, FETCH_TIMEOUT_S)
    check(built.returncode == 0, "it does not compile", _tail(built.stdout))
    whole.rename(program)  # complete, or not there


def _run(command: list[str], timeout_s: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _tail(text: str) -> str:
    return text[-TAIL_CHARACTERS:]
