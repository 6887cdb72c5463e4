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
    NONE,
    Moment,
    QueryState,
    state_of_chain_query,
    state_of_table_query,
)
from tests.spark.driver_process import kill_driver, log_tail, start_driver

CHOICES = (Moment.BEFORE_PUBLICATION, Moment.BEFORE_RECORD, None)
"""Moments of one driver after the other, in turns; None is a random one."""
RANDOM_MOST_S = 4.0
"""Longest time between the last batch that a driver records and its death at a random moment."""
BATCHES_MOST = 2
"""Number of batches that a driver does at most before it dies."""
LAST_BATCH_FACTOR = 4
"""The last driver, which is not killed, takes batches larger by this factor."""
START_TIMEOUT_S = 180.0
CRASH_TIMEOUT_S = 300.0
FINISH_TIMEOUT_S = 1_800.0
POLL_S = 0.05


class DriverFailedError(AssertionError):
    """A driver ended, or did not end, against what was expected."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One killed driver: the chosen moment, if any, and the states of its queries after it."""

    chosen: Moment | None
    copy: QueryState
    table: QueryState

    @property
    def is_as_chosen(self) -> bool:
        """Whether the chosen moment was hit, or none was chosen."""
        return self.chosen is None or self.copy.moment is self.chosen

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
        self._batch_entries = batch_entries
        self._log = directory / "driver.log"
        self._started = directory / names.STARTED
        self._rng = random.Random(seed)
        self._running: subprocess.Popen[bytes] | None = None
        self._chosen: Moment | None = None
        self._number = 0
        self._recorded_before = NONE
        self.kills: list[Kill] = []

    def start(self) -> None:
        """Start the next driver to be killed; return when both queries run or it died."""
        self._chosen = CHOICES[self._number % len(CHOICES)]
        self._number += 1
        arguments = [*self._arguments, "--batch-entries", str(self._batch_entries)]
        state = self.state_of_copy()
        self._recorded_before = state.recorded
        if self._chosen:
            batch = state.planned + self._rng.randint(1, BATCHES_MOST)
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

        Raises DriverFailedError if the driver ended for another reason.
        """
        assert self._running is not None
        try:
            if self._chosen:
                status = self._running.wait(CRASH_TIMEOUT_S)
                if status != -signal.SIGKILL:
                    raise DriverFailedError(self._text(f"ended with status {status}"))
            else:
                self._wait_random(self._running)
        except subprocess.TimeoutExpired:
            raise DriverFailedError(self._text(f"was not {self._chosen} in time")) from None
        finally:
            self.stop()
        table = self._directory / names.TABLE
        state = state_of_table_query(self._directory / names.TABLE_CHECKPOINT, table)
        kill = Kill(self._chosen, self.state_of_copy(), state)
        self.kills.append(kill)
        return kill

    def _wait_random(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for some more batches, and then for a random time."""
        batch = self._recorded_before + self._rng.randint(0, BATCHES_MOST)
        end = time.monotonic() + CRASH_TIMEOUT_S
        while self.state_of_copy().recorded < batch and driver.poll() is None:
            if time.monotonic() > end:
                raise DriverFailedError(self._text(f"did not record batch {batch} in time"))
            time.sleep(POLL_S)
        time.sleep(self._rng.uniform(0, RANDOM_MOST_S))
        if driver.poll() is not None:
            raise DriverFailedError(self._text("ended before it was killed"))

    def finish(self) -> None:
        """Run a driver until it has all present lines. Raises DriverFailedError."""
        self._number += 1
        batch_entries = str(self._batch_entries * LAST_BATCH_FACTOR)
        arguments = [*self._arguments, "--batch-entries", batch_entries, "--last"]
        self._running = start_driver(names.__name__, arguments, self._log)
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
