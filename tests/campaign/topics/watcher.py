"""Process that reads the tokens once with read_committed while they are written.

Leaves judging to `judge`, which compares its records with the final contents, and the search for
the cause of a hanging reader to `stuck`.

Invariants: it starts at the beginning, or after the records of its earlier history, and never
chooses another position: an offset out of range is a complaint. It ends after the last record. A
second thread queries the ends of partitions, so a standstill is always noticed.
"""

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.campaign.topics.asking import Ends
from tests.campaign.topics.facts import read_history
from tests.campaign.topics.spans import Recogniser
from tests.campaign.topics.stuck import Standstill, fresh_reader, known_to_client
from tests.campaign.topics.work import TOKENS, Worker

READ_MAX: Final = 1_000
LOOK_EVERY_S: Final = 3.0
ENDS_S: Final = 2.0
STATISTICS_MS: Final = 2_000
NEVER: Final = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._BAD_MSG,
    KafkaError._LOG_TRUNCATION,
)


def positions_told(history: Path, name: str, partitions: int) -> list[int]:
    """Return the positions to continue from: after the records in the history."""
    watched = read_history(history).watched.get(name, {})
    return [watched[number].end if number in watched else 0 for number in range(partitions)]


class Watcher:
    """One reader and its positions."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        options = worker.options
        self._partitions = options.partitions
        self._positions = positions_told(worker.history_path, options.name, self._partitions)
        self._reached = list(self._positions)
        """Positions, also after offsets that no reader gets: markers, and aborted records."""
        self._seen = Recogniser()
        self._statistics = ""
        self._statistics_at = 0.0
        self._settings: dict[str, str | bool] = {
            "bootstrap.servers": options.bootstrap,
            "client.id": options.name,
            "group.id": "watchers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        self._consumer = Consumer(
            {
                **self._settings,
                "fetch.queue.backoff.ms": 10,
                "reconnect.backoff.max.ms": 1_000,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._on_statistics,
            }
        )

    def go(self) -> None:
        """Read until the stop, and then to the end."""
        places = enumerate(self._positions)
        self._consumer.assign([TopicPartition(TOKENS, each, offset) for each, offset in places])
        threading.Thread(target=self._look, daemon=True).start()
        ends: Mapping[int, int] | None = None
        while ends is None or any(self._reached[each] < end for each, end in ends.items()):
            self._worker.alive()
            if self._worker.is_stopping and ends is None:
                ends = self._settled_ends()
            self._read_some()
        try:
            self._consumer.close()
        except KafkaException as raised:
            self._worker.failed("close", raised.args[0])

    def _read_some(self) -> None:
        got_some = False
        for message in self._consumer.consume(READ_MAX, 0.1):
            got_some |= self._take(message)
        if got_some:
            self._worker.tell("read", group="", spans=self._seen.words())

    def _take(self, message: Message) -> bool:
        """Add one message; return whether it is a record."""
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._worker.failed("watch", error)
            if error.code() in NEVER:
                self._worker.tell("complaint", text=f"partition {partition}: {error}")
            return False
        assert partition is not None, "it is of a partition"
        assert offset is not None, "it is of a place"
        if error is not None:
            self._reached[partition] = max(self._reached[partition], offset)
            return False
        due = self._positions[partition]
        if offset < due or not self._seen.take(partition, offset, message.value()):
            text = f"partition {partition}: {offset} after {due}: {message.value()!r:.80}"
            self._worker.tell("complaint", text=text)
            return False
        self._positions[partition] = self._reached[partition] = offset + 1
        return True

    def _on_statistics(self, statistics: str) -> None:
        self._statistics, self._statistics_at = statistics, time.monotonic()

    def _settled_ends(self) -> Mapping[int, int] | None:
        """Return the ends when no transaction is open; None while one is, or if that is unknown."""
        bootstrap = self._worker.options.bootstrap
        everything = Ends(bootstrap, IsolationLevel.READ_UNCOMMITTED)
        committed = Ends(bootstrap, IsolationLevel.READ_COMMITTED)
        with everything, committed:
            try:
                ends = everything.all(TOKENS, self._partitions, ENDS_S)
                return ends if committed.all(TOKENS, self._partitions, ENDS_S) == ends else None
            except KafkaException:
                return None

    def _look(self) -> None:
        """Compare with the ends repeatedly; end the process when it is stuck."""
        standstill = Standstill()
        with Ends(self._worker.options.bootstrap, IsolationLevel.READ_COMMITTED) as source:
            while True:
                time.sleep(LOOK_EVERY_S)
                answers = source.known(TOKENS, self._partitions, ENDS_S)
                ends = {key: end for key, end in answers.items() if isinstance(end, int)}
                stuck = standstill.note(self._reached, ends, time.monotonic())
                if not stuck:
                    continue
                now, first = time.monotonic(), stuck[0]
                fresh = fresh_reader(self._settings, TOKENS, first)
                if fresh is None:
                    text = (
                        f"{TOKENS} {first.partition}: no reader gets records from {first.position}"
                    )
                    self._worker.tell("complaint", text=text)
                found = {
                    "stuck": {e.partition: {"at": e.position, "end": e.end} for e in stuck},
                    "since_s": round(now - first.since, 1),
                    "a_fresh_reader_got": fresh,
                    "statistics_age_s": round(now - self._statistics_at, 1),
                    **known_to_client(self._statistics, TOKENS, [e.partition for e in stuck]),
                }
                self._worker.end_as_stuck("it got nothing where there is something", found)


def main() -> int:
    """Read until SIGTERM."""
    worker = Worker("reads the tokens with read_committed")
    Watcher(worker).go()
    worker.tell("ended", left=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
