"""Process that is a member of the group that reads the plain topic, and commits its position.

Leaves judging to `judge`.

Invariants: records are added to the history before their offset is committed. A commit is added
when the client has its confirmation. A queried offset is added with the time of the query. The
client never chooses where to read from: an offset out of range is an error.
"""

import sys
import time
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
from tests.campaign.topics.spans import Recogniser
from tests.campaign.topics.work import GROUP, PLAIN, Silence, Worker

COMMIT_S: Final = 0.5
CALL_S: Final = 10.0
ENDS_S: Final = 2.0
READ_MAX: Final = 5_000
SESSION_TIMEOUT_MS: Final = 10_000


class Member:
    """One consumer of the group."""

    def __init__(self, worker: Worker, protocol: str) -> None:
        self._worker = worker
        self._group = f"{GROUP}-{protocol}"
        self._is_incremental = protocol == "consumer"
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._seen = Recogniser()
        self._untold = 0
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": worker.options.bootstrap,
            "client.id": worker.options.name,
            "group.id": self._group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.queue.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1_000,
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
        self._consumer = Consumer(settings)

    def go(self) -> None:
        """Read and commit until the stop; then leave the group."""
        self._consumer.subscribe(
            [PLAIN],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        due, silence = time.monotonic() + COMMIT_S, Silence(self._worker, self._left)
        while not self._worker.is_stopping:
            self._worker.alive()
            self._read_some()
            silence.note(got_some=bool(self._untold) or not self._positions)
            self._tell_seen()
            if time.monotonic() >= due:
                self._commit()
                due = time.monotonic() + COMMIT_S
        self._commit()
        self._consumer.close()

    def _read_some(self) -> None:
        """Poll one record at a time: callbacks then run between two records, never after both."""
        wait_s = 0.1
        for _ in range(READ_MAX):
            message = self._consumer.poll(wait_s)
            if message is None:
                return
            self._take(message)
            wait_s = 0.0

    def _take(self, message: Message) -> None:
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self._worker.failed("consume", error)
            if error.code() in NEVER:
                self._worker.tell("complaint", text=f"partition {partition}: {error}")
            return
        assert partition is not None, "it is a record"
        assert offset is not None, "it is a record"
        due = self._positions.get(partition)
        if due is None or offset < due:
            text = f"partition {partition}: offset {offset} came where {due} was next"
            self._worker.tell("complaint", text=text)
        self._positions[partition] = offset + 1
        if not self._seen.take(partition, offset, message.value()):
            text = f"partition {partition}, offset {offset}: foreign value"
            self._worker.tell("complaint", text=text)
            return
        self._untold += 1

    def _tell_seen(self) -> None:
        if self._untold:
            self._worker.tell("read", group=self._group, spans=self._seen.words())
            self._untold = 0

    def _left(self) -> dict[str, object]:
        """Return (next, end) of each partition that has records left."""
        with Ends(self._worker.options.bootstrap, IsolationLevel.READ_UNCOMMITTED) as source:
            ends = source.known(PLAIN, self._worker.options.partitions, ENDS_S)
        held = self._positions.items()
        left = {str(p): (offset, ends[p]) for p, offset in held if ends[p] != offset}
        return {"left": left} if left else {}

    def _commit(self) -> None:
        new = {p: o for p, o in self._positions.items() if self._committed.get(p, -1) < o}
        if not new:
            return
        places = [TopicPartition(PLAIN, partition, offset) for partition, offset in new.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False) or []
        except KafkaException as raised:
            self._worker.failed("commit", raised.args[0])
            return
        done = {answer.partition: answer.offset for answer in answers if answer.error is None}
        self._committed |= done
        self._worker.tell("offsets committed", group=self._group, offsets=done)

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        asked = time.monotonic()
        answers = self._ask_committed(consumer, given)
        if answers is None:
            return
        found = {answer.partition: max(0, answer.offset) for answer in answers}
        self._worker.tell("offsets fetched", group=self._group, asked=asked, offsets=found)
        self._positions |= found
        self._committed |= found
        starts = [TopicPartition(PLAIN, partition, offset) for partition, offset in found.items()]
        if self._is_incremental:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)

    def _ask_committed(
        self, consumer: Consumer, given: list[TopicPartition]
    ) -> list[TopicPartition] | None:
        """Query until all offsets are received; return None if stopped before."""
        places = [TopicPartition(PLAIN, partition.partition) for partition in given]
        while places and not self._worker.is_stopping:
            self._worker.alive()
            try:
                answers = consumer.committed(places, timeout=CALL_S)
                failed = [answer.error for answer in answers if answer.error is not None]
                if not failed:
                    return answers
                self._worker.failed("committed", failed[0])
            except KafkaException as raised:
                self._worker.failed("committed", raised.args[0])
            self._worker.pause(0.2)
        return None if places else []

    def _on_revoke(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        self._tell_seen()
        self._commit()
        self._drop(consumer, given)

    def _on_lost(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        self._tell_seen()
        self._drop(consumer, given)

    def _drop(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        for partition in given:
            self._positions.pop(partition.partition, None)
            self._committed.pop(partition.partition, None)
        if self._is_incremental:
            consumer.incremental_unassign(given)
        else:
            consumer.unassign()


NEVER: Final = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._BAD_MSG,
    KafkaError._LOG_TRUNCATION,
)


def main() -> int:
    """Read until SIGTERM."""
    worker = Worker("reads the plain topic as a member of a group")
    protocol = worker.options.name.split("-")[0]
    Member(worker, protocol).go()
    worker.tell("ended", left=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
