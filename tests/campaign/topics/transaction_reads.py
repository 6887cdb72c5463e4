"""Committed tokens that a transactor reads before it writes its own: a transaction that depends on
others.

Leaves judging to `tests.judge.elle`.

Invariant: it begins at the end of the topic, and never chooses another position afterwards.
"""

from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from tests.campaign.topics.spans import Recogniser
from tests.campaign.topics.work import TOKENS, Worker

READ_MAX: Final = 200
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
            }
        )
        partitions = range(options.partitions)
        self._consumer.assign([TopicPartition(TOKENS, each, OFFSET_END) for each in partitions])

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
