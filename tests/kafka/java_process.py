"""Processes that run one of Kafka's own programs or our Java scenarios, to their end or a stop.

Leaves fetching them to `jars`.

Invariant: a program in the background ends with the scenario that started it, on Linux even if the
scenario is killed.
"""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.peers.maven import JavaPeer, PeerUnavailableError
from metadata.store.embedded_supervisor import die_with_parent
from tests.kafka.fetching import FETCH_TIMEOUT_S, fetched_once, one_at_a_time
from tests.kafka.jars import kafka_jars
from tests.kafka.scenario import check

TOOL_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60
POLL_S: Final = 0.2
TAIL_CHARACTERS: Final = 6000
FLAGS: Final = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@fetched_once
def jars(part: str = "java") -> JavaPeer:
    """Fetch once in a run. Raises UnavailableError, PeerUnavailableError."""
    with one_at_a_time(part):
        try:
            return asyncio.run(asyncio.wait_for(kafka_jars(part), FETCH_TIMEOUT_S))
        except TimeoutError:
            raise PeerUnavailableError(f"Maven took over {FETCH_TIMEOUT_S} s") from None


def command_of(
    main: str, *arguments: str, part: str = "java", flags: Sequence[str] = FLAGS
) -> list[str]:
    """Return the command line of a class."""
    java = jars(part)
    return [java.java, *flags, "-cp", java.classpath, main, *arguments]


def run_java(
    main: str,
    *arguments: str,
    part: str = "java",
    flags: Sequence[str] = FLAGS,
    given: str = "",
    timeout_s: float = TOOL_TIMEOUT_S,
) -> str:
    """Run a class with this input to its end, and return its output.

    Raises AssertionError if it ends with an error.
    """
    done = subprocess.run(
        command_of(main, *arguments, part=part, flags=flags),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    name = main.rpartition(".")[2]
    check(done.returncode == 0, f"{name} ended with {done.returncode}", _tail(done.stdout))
    return done.stdout


class JavaProgram:
    """A class that runs until it is stopped; its output goes to a file."""

    def __init__(self, output: Path, main: str, *arguments: str, part: str) -> None:
        self._output = output
        self._name = main.rpartition(".")[2]
        self._command = command_of(main, *arguments, part=part)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # it calls the kernel alone
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def output(self) -> str:
        """Output so far."""
        return self._output.read_text(errors="replace")

    def wait_until(self, condition: Callable[[str], object], timeout_s: float) -> None:
        """Wait until its output meets a condition. Raises AssertionError if it is not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition(self.output):
            check(time.monotonic() < deadline, f"{self._name} did not come so far", self.tail)
            check(self._started.poll() is None, f"{self._name} ended", self.tail)
            time.sleep(POLL_S)

    def wait_end(self, timeout_s: float) -> None:
        """Wait until it has ended by itself. Raises AssertionError if it does not, or fails."""
        try:
            status = self._started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} goes on: {self.tail}") from None
        check(status == 0, f"{self._name} ended with {status}", self.tail)

    def stop(self) -> str:
        """Request its end, wait for it, and return the complete output."""
        self._started.send_signal(signal.SIGTERM)
        self._started.wait(STOP_TIMEOUT_S)
        return self.output

    def kill(self) -> None:
        """End it with kill -9; nothing if it has ended."""
        self._started.kill()
        self._started.wait(STOP_TIMEOUT_S)

    @property
    def tail(self) -> str:
        """End of its output."""
        return _tail(self.output)

    @property
    def _started(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process


def events(output: str) -> Sequence[dict[str, object]]:
    """Return the JSON lines that a verifiable client printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _tail(output: str) -> str:
    return output[-TAIL_CHARACTERS:]
