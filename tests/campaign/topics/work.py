"""Common parts of the processes of a campaign on topics: options, history, and the stop.

Leaves the work to each module.

Invariants: a worker ends when its parent ends in any way. SIGTERM requests an orderly end.
"""

import argparse
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from confluent_kafka import KafkaError

from tests.campaign.history import HistoryFile
from tests.campaign.topics.stuck import threads_of

PLAIN = "plain"
"""Topic written by idempotent producers and read by a group."""
TOKENS = "tokens"
"""Topic written only in transactions."""
GROUP = "readers"
STUCK_STATUS: Final = 75
STUCK_S_MAX: Final = 60.0
"""A worker whose client does not return, or gets nothing, for longer is ended, counted and started
again: threads of librdkafka can wait for each other when brokers die (its issue 5476). If the
brokers are the cause, the next worker hangs too, and the campaign reports it at its end.
"""
WATCH_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a worker."""

    bootstrap: str
    name: str
    run: int
    seed: int
    records_per_s: float
    partitions: int

    @property
    def rng(self) -> Random:
        """Random numbers that depend on the campaign's seed, the worker's name and its run."""
        return Random(f"{self.seed}/{self.name}/{self.run}")


class Worker:
    """One process of a campaign."""

    def __init__(self, job: str) -> None:
        faulthandler.enable()
        parser = argparse.ArgumentParser(description=job)
        parser.add_argument("--bootstrap", required=True)
        parser.add_argument("--history", type=Path, required=True)
        parser.add_argument("--name", required=True)
        parser.add_argument("--run", type=int, default=0)
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--records-per-s", type=float, default=0.0)
        parser.add_argument("--partitions", type=int, required=True)
        parser.add_argument("--is-ending", action="store_true", help="stop at the end of the data")
        given = vars(parser.parse_args())
        self.history_path: Path = given.pop("history")
        self.history = HistoryFile(self.history_path)
        is_ending = given.pop("is_ending")
        self.options = Options(**given)
        self._is_ending = threading.Lock()
        self._stopping = threading.Event()
        if is_ending:
            self._stopping.set()
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())
        self._seen_alive = time.monotonic()
        threading.Thread(target=_end_with_parent, daemon=True).start()
        threading.Thread(target=self._end_when_stuck, daemon=True).start()

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping.is_set()

    def alive(self) -> None:
        """Report that the client has returned from its call, or is about to be called."""
        self._seen_alive = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait this long, or until a stop is requested."""
        self._stopping.wait(seconds)

    def tell(self, event: str, **fields: object) -> None:
        """Write a fact, with its worker and the time on the clock that all processes share."""
        self.history.tell(event, by=self.options.name, mono=time.monotonic(), **fields)

    def _end_when_stuck(self) -> None:
        """End a process whose client hangs: its threads can deadlock."""
        while time.monotonic() - self._seen_alive < STUCK_S_MAX:
            time.sleep(WATCH_S)
        self.end_as_stuck("its call did not return")

    def end_as_stuck(self, why: str, found: Mapping[str, object] | None = None) -> NoReturn:
        """End this process, so that it is started again with a new client.

        Record the facts found, with what its threads wait for.
        """
        self._is_ending.acquire()
        path = self.history_path.with_suffix(f".{self.options.run}.stuck")
        threads = threads_of(os.getpid(), path)
        self.tell("stuck", found={"why": why, **(found or {}), "threads": threads})
        self.tell("failed", error="client stuck", text=why)
        os._exit(STUCK_STATUS)

    def failed(self, where: str, error: KafkaError | None) -> None:
        """Record a failed call: a correct outcome, which is counted."""
        name = error.name() if error is not None else "unknown"
        self.tell("failed", error=f"{where}: {name}", text=str(error))


class Silence:
    """Ends a worker whose client got no record for long, though there were some.

    `look` returns the evidence, or nothing.
    """

    def __init__(
        self, worker: Worker, look: Callable[[], Mapping[str, object]] | None = None
    ) -> None:
        self._worker = worker
        self._look = look
        self._since = time.monotonic()

    def note(self, *, got_some: bool) -> None:
        """Record whether a record came, or none is expected."""
        now = time.monotonic()
        if got_some:
            self._since = now
        elif now - self._since > STUCK_S_MAX:
            found = self._look() if self._look else None
            if found is None or found:
                self._worker.end_as_stuck("it got nothing for long", found)
            self._since = now


class Pace:
    """Limits a loop to a rate; 0 means no limit."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._begun = time.monotonic()
        self._count = 0

    def may_go(self, count: int) -> bool:
        """Return whether this many more are allowed now; missed ones are not made up for."""
        if not self._per_s:
            return True
        now = time.monotonic()
        allowed = (now - self._begun) * self._per_s
        if allowed > self._count + self._per_s:
            self._begun, self._count, allowed = now, 0, 0.0
        if self._count + count > allowed + 1:
            return False
        self._count += count
        return True


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        continue
    os._exit(1)
