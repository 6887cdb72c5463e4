"""Committed tokens that a transactor reads before it writes its own: a transaction that depends on
others.

Leaves judging to `tests.judge.elle`.

Invariant: it begins at the end of the topic, and never chooses another position afterwards. So it
asks for the end itself: librdkafka asks for a logical offset once more, half a second later, when
the answer of an earlier leader arrives late, and then goes on from the end of that time
(`rd_kafka_toppar_handle_Offset`, 2.16).
"""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.campaign.topics.asking import REFRESH_MS
from tests.campaign.topics.spans import Recogniser
from tests.campaign.topics.work import TOKENS, Worker

READ_MAX: Final = 200
ASK_S: Final = 5.0
PAUSE_S: Final = 0.1
STARTED_S_MAX: Final = 120.0
"""Maximum time until every partition has a leader that answers, in seconds."""
Spans = dict[str, list[list[str | int]]]


class TransactionReads:
    """Reader of one transactor process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        options = worker.options
        self.name = f"{options.name}.{options.run}"
        self._seen = Recogniser()
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "client.id": f"{options.name}-reads",
                "group.id": "transactors",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "reconnect.backoff.max.ms": 1_000,
                "topic.metadata.refresh.interval.ms": REFRESH_MS,
            }
        )
        partitions = range(options.partitions)
        until_s = time.monotonic() + STARTED_S_MAX
        ends = [self._end_of(partition, until_s) for partition in partitions]
        self._consumer.assign(ends)

    def _end_of(self, partition: int, until_s: float) -> TopicPartition:
        """Return the end of a partition as it is now. Raises TimeoutError after `until_s`."""
        asked = TopicPartition(TOKENS, partition)
        while time.monotonic() < until_s:
            try:
                found = self._consumer.get_watermark_offsets(asked, timeout=ASK_S, cached=False)
            except KafkaException as raised:
                self._worker.failed("end of tokens", raised.args[0])
                time.sleep(PAUSE_S)  # a refusal is immediate
                continue
            if found is not None:
                return TopicPartition(TOKENS, partition, found[1])
        raise TimeoutError(f"no end of partition {partition} of the tokens in {STARTED_S_MAX} s")

    def take(self) -> Spans:
        """Return the spans of the tokens that arrived since the last call."""
        for message in self._consumer.consume(READ_MAX, 0):
            error = message.error()
            if error is not None:
                self._worker.failed("read in a transaction", error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "it is a record"
            assert offset is not None, "it is a record"
            if not self._seen.take(partition, offset, message.value()):
                text = f"partition {partition}, offset {offset}: foreign value"
                self._worker.tell("complaint", text=text)
        return self._seen.words()

    def close(self) -> None:
        """Close the client."""
        try:
            self._consumer.close()
        except KafkaException as raised:
            self._worker.failed("close", raised.args[0])
