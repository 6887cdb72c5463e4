"""Drivers of a day: start them, kill them at random or chosen moments, record what was hit.

A random moment is chosen by time. A chosen one is reached by a sink that kills its own driver. In
both cases the durable state after the kill shows the moment that was hit (`moments`).
"""

import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ledger_client.sync import LedgerClient
from tests.spark.day import driver as names
from tests.spark.day.moments import (
    Moment,
    QueryState,
    state_of_chain_query,
    state_of_table_query,
)
from tests.spark.driver_process import kill_driver, log_tail, start_driver

CHOICES = (Moment.BEFORE_PUBLICATION, None, Moment.BEFORE_RECORD)
"""Moments of one driver after the other, in turns; None is a random one."""
RANDOM_MOST_S = 8.0
BATCHES_MOST = 2
"""A driver that dies at a chosen moment begins at most this number of new batches."""
START_TIMEOUT_S = 180.0
CRASH_TIMEOUT_S = 300.0
FINISH_TIMEOUT_S = 1_800.0
POLL_S = 0.01


class DriverFailedError(AssertionError):
    """A driver ended, or did not end, against what was expected."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One killed driver: the chosen moment, if any, and the states of its queries after it."""

    chosen: Moment | None
    copy: QueryState
    table: QueryState

    def __str__(self) -> str:
        chosen = f"chosen: {self.chosen}" if self.chosen else "random"
        queries = (("copy", self.copy), ("table", self.table))
        hit = [f"{name} in batch {state.planned} {state.moment}" for name, state in queries]
        return f"{chosen}; {', '.join(hit)}"


class Drivers:
    """Drivers of one day, which continue each other's checkpoints."""

    def __init__(
        self, client: LedgerClient, metadata: str, directory: Path, batch_entries: int, seed: int
    ) -> None:
        self._client = client
        self._directory = directory
        self._arguments = ["--metadata", metadata, "--directory", str(directory)]
        self._arguments += ["--batch-entries", str(batch_entries)]
        self._log = directory / "driver.log"
        self._started = directory / names.STARTED
        self._rng = random.Random(seed)
        self._running: subprocess.Popen[bytes] | None = None
        self._chosen: Moment | None = None
        self._number = 0
        self.kills: list[Kill] = []

    def start(self) -> None:
        """Start the next driver to be killed; return when both queries run or it died."""
        self._chosen = CHOICES[self._number % len(CHOICES)]
        self._number += 1
        arguments = list(self._arguments)
        if self._chosen:
            batch = self.state_of_copy().planned + self._rng.randint(1, BATCHES_MOST)
            arguments += ["--crash-from-batch", str(batch)]
            before = self._chosen is Moment.BEFORE_PUBLICATION
            arguments += ["--crash-before-publishing"] * before
        self._started.unlink(missing_ok=True)
        self._running = start_driver(names.__name__, arguments, self._log)
        end = time.monotonic() + START_TIMEOUT_S
        while not self._started.exists() and self._running.poll() is None:
            if time.monotonic() > end:
                raise DriverFailedError(self._text(f"did not start in {START_TIMEOUT_S} s"))
            time.sleep(POLL_S)
        if self._running.poll() not in (None, -signal.SIGKILL):
            raise DriverFailedError(self._text("ended at its start"))

    def kill(self) -> Kill:
        """Wait for the moment, kill the driver, return what was hit.

        Raises DriverFailedError if the driver ended before a random moment, or another moment than
        the chosen one was hit.
        """
        assert self._running is not None
        try:
            if self._chosen:
                status = self._running.wait(CRASH_TIMEOUT_S)
                if status != -signal.SIGKILL:
                    raise DriverFailedError(self._text(f"ended with status {status}"))
            else:
                time.sleep(self._rng.uniform(0, RANDOM_MOST_S))
                if self._running.poll() is not None:
                    raise DriverFailedError(self._text("ended before it was killed"))
        except subprocess.TimeoutExpired:
            raise DriverFailedError(self._text(f"was not {self._chosen} in time")) from None
        finally:
            self.stop()
        table = self._directory / names.TABLE
        state = state_of_table_query(self._directory / names.TABLE_CHECKPOINT, table)
        kill = Kill(self._chosen, self.state_of_copy(), state)
        self.kills.append(kill)
        if self._chosen and kill.copy.moment is not self._chosen:
            raise DriverFailedError(self._text(f"was killed at another moment: {kill}"))
        return kill

    def finish(self) -> None:
        """Run a driver until it has all present lines. Raises DriverFailedError."""
        self._number += 1
        self._running = start_driver(names.__name__, [*self._arguments, "--last"], self._log)
        try:
            status = self._running.wait(FINISH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DriverFailedError(self._text(f"ran for {FINISH_TIMEOUT_S} s")) from None
        finally:
            self.stop()
        if status:
            raise DriverFailedError(self._text(f"ended with status {status}"))

    def stop(self) -> None:
        """Kill the running driver, if any."""
        if self._running is not None:
            kill_driver(self._running)
            self._running = None

    def state_of_copy(self) -> QueryState:
        """Return the state of the query that writes the other chain."""
        checkpoint = self._directory / names.COPY_CHECKPOINT
        return state_of_chain_query(self._client, checkpoint, names.COPY)

    def _text(self, what: str) -> str:
        return f"driver {self._number} {what}: {log_tail(self._log)}"
