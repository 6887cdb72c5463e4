"""Readings of topics from beginning to end, with new clients, several at a time.

Leaves judging the results to `judge`.

Invariants: each reading is a separate process with a separate client. A reader that gets no record
for long reports that instead of waiting for ever.
"""

import multiprocessing
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition

from tests.campaign.topics.asking import Ends
from tests.campaign.topics.judge import Found
from tests.campaign.topics.spans import Recogniser

SILENT_S_MAX: Final = 30.0
STABLE_S_MAX: Final = 60.0
"""After the end of the campaign, transactions without an end must time out within this time."""
CALL_S: Final = 10.0
READ_MAX: Final = 10_000
FOREIGN_MAX: Final = 1_000
SHARES: Final = 2
"""Number of processes that share a reading."""


@dataclass(frozen=True, slots=True)
class Task:
    """Partitions that one process reads."""

    bootstrap: str
    topic: str
    partitions: tuple[int, ...]
    ends: tuple[int, ...]
    level: IsolationLevel


class Reading:
    """Readings of the topics of one cluster."""

    def __init__(self, bootstrap: str, partitions: int, pool: ProcessPoolExecutor) -> None:
        self._bootstrap = bootstrap
        self._partitions = range(partitions)
        self._pool = pool
        self.unserved: dict[tuple[str, int], str] = {}

    def ends(self, topic: str, level: IsolationLevel) -> dict[int, int]:
        """Return the end of each partition, waiting for those without a leader.

        Partitions that no broker serves for too long are left out, and are in `unserved` from then
        on.
        """
        deadline = time.monotonic() + SILENT_S_MAX
        with Ends(self._bootstrap, level) as source:
            while True:
                answers = source.known(topic, len(self._partitions), CALL_S)
                ends = {key: each for key, each in answers.items() if isinstance(each, int)}
                why = {(topic, key): each for key, each in answers.items() if isinstance(each, str)}
                if not why.keys() - self.unserved.keys() or time.monotonic() > deadline:
                    self.unserved |= why
                    return ends
                time.sleep(0.2)

    def wait_until_stable(self, topic: str) -> tuple[float, str]:
        """Wait until no transaction is open.

        Return how long that took, and "", or what is open after too long.
        """
        begun = time.monotonic()
        while True:
            ends = self.ends(topic, IsolationLevel.READ_UNCOMMITTED)
            stable = self.ends(topic, IsolationLevel.READ_COMMITTED)
            waited = time.monotonic() - begun
            if ends == stable:
                return waited, ""
            if waited > STABLE_S_MAX:
                return waited, f"{topic}: ends {ends}, stable {stable}"
            time.sleep(0.2)

    def begin(self, topic: str, level: IsolationLevel) -> "list[Future[Found]]":
        """Start to read a topic from its beginning to its current end."""
        ends = self.ends(topic, level)
        shares = [tuple(ends)[first::SHARES] for first in range(SHARES)]
        return [
            self._pool.submit(
                read, Task(self._bootstrap, topic, share, tuple(ends[p] for p in share), level)
            )
            for share in shares
            if share
        ]


def joined(readings: "list[Future[Found]]") -> Found:
    """Wait for the shares of one reading; return all results."""
    whole = Found()
    for reading in readings:
        part = reading.result()
        whole.spans |= part.spans
        whole.foreign += part.foreign
        whole.error = whole.error or part.error
    return whole


def new_pool() -> ProcessPoolExecutor:
    """Return one process for each processor, without the open files of its parent."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context)


def read(task: Task) -> Found:
    """Read some partitions to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": task.level.name.lower(),
            "check.crcs": True,
            "fetch.queue.backoff.ms": 10,
        }
    )
    found, seen = Found(), Recogniser()
    try:
        consumer.assign([TopicPartition(task.topic, partition, 0) for partition in task.partitions])
        _read_to(consumer, dict(zip(task.partitions, task.ends, strict=True)), found, seen)
    finally:
        consumer.close()
    found.spans = seen.spans()
    return found


def _read_to(consumer: Consumer, ends: dict[int, int], found: Found, seen: Recogniser) -> None:
    got_at = time.monotonic()
    pending = {each: end for each, end in ends.items() if end}
    while pending:
        messages = consumer.consume(READ_MAX, 0.2)
        if messages:
            got_at = time.monotonic()
        elif time.monotonic() - got_at > SILENT_S_MAX:
            found.error = f"nothing came for {SILENT_S_MAX:.0f} s: {pending}"
            return
        for message in messages:
            error = message.error()
            partition, offset = message.partition(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable():
                    found.error = f"{partition}: {error}"
                    return
                continue
            assert partition is not None, "it is of a partition"
            assert offset is not None, "it is of a place"
            if error is not None:
                if offset >= ends[partition]:
                    pending.pop(partition, None)
            elif not seen.take(partition, offset, message.value()):
                found.foreign.append(f"{partition}, offset {offset}")
                if len(found.foreign) > FOREIGN_MAX:
                    found.error = "too much is foreign"
                    return
