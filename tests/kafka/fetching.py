"""Fetching what scenarios need: once in a run, also if several workers need it.

Leaves how it is fetched to `jars`, `node_clients` and `consoles.go_program`.

Invariants: what was not available is not asked for again by the same worker, since each attempt may
take minutes. A fetch ends long before the timeout of a test that waits for it, and for that of
another worker, so that it is skipped and does not fail.
"""

import fcntl
import functools
import os
import signal
import subprocess
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.peers.maven import PeerUnavailableError, default_cache
from tests.kafka.scenario import UnavailableError

FETCH_TIMEOUT_S: Final = 240
TEST_TIMEOUT_S: Final = 900
"""Timeout of a test that may have to fetch: of pytest, which has a shorter one for others."""
UNAVAILABLE: Final = (UnavailableError, PeerUnavailableError)

Fetched = TypeVar("Fetched")


def fetched_once(fetch: Callable[..., Fetched]) -> Callable[..., Fetched]:
    """Keep what a function returns for its arguments, or that it is not available."""

    @functools.cache
    def outcome(*arguments: Hashable) -> Fetched | UnavailableError | PeerUnavailableError:
        try:
            return fetch(*arguments)
        except UNAVAILABLE as error:
            return error.with_traceback(None)

    @functools.wraps(fetch)
    def found(*arguments: Hashable) -> Fetched:
        result = outcome(*arguments)
        if isinstance(result, UNAVAILABLE):
            raise type(result)(str(result))
        return result

    return found


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Wait until no other process fetches the same into the cache. Raises UnavailableError."""
    cache = default_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / f"{name}.lock").open("ab")
    except OSError as error:
        raise UnavailableError(f"the cache cannot be written: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_fetch(
    command: Sequence[str], directory: Path, variables: Mapping[str, str], timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command that fetches or builds, to its end.

    Raises UnavailableError if it takes too long. It is killed then with all that it started, since
    compilers would go on for minutes.
    """
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                text = f"{' '.join(command)} took over {timeout_s:g} s"
                raise UnavailableError(text) from None
            raise
    return subprocess.CompletedProcess(command, process.returncode, output)
