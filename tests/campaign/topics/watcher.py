"""A process that reads the tokens with read_committed while they are written, once each.

Leaves judging to `judge`, which compares what was seen here with what is there at the end.

Invariant: it begins at the beginning, or behind what an earlier run told of, and never chooses
another place: an offset that is not there is a complaint.
"""

import sys
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.campaign.topics.facts import read_history
from tests.campaign.topics.payloads import identify
from tests.campaign.topics.spans import SpanMaker
from tests.campaign.topics.work import TOKENS, Silence, Worker

READ_MAX: Final = 1_000
NEVER: Final = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._BAD_MSG,
    KafkaError._LOG_TRUNCATION,
)


def positions_told(history: Path, partitions: int) -> list[int]:
    """Return where to go on: behind what is in the history."""
    spans = read_history(history).watched
    last = {partition: each[-1] for partition, each in spans.items() if each}
    return [
        last[each].offset + last[each].count if each in last else 0 for each in range(partitions)
    ]


def main() -> int:
    """Read until SIGTERM."""
    worker = Worker("reads the tokens with read_committed")
    consumer = Consumer(
        {
            "bootstrap.servers": worker.options.bootstrap,
            "client.id": worker.options.name,
            "group.id": "watchers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.queue.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1_000,
        }
    )
    positions = positions_told(worker.history_path, worker.options.partitions)
    places = [TopicPartition(TOKENS, each, offset) for each, offset in enumerate(positions)]
    consumer.assign(places)
    silence = Silence(worker)
    seen = SpanMaker()
    while not worker.is_stopping:
        worker.alive()
        for message in consumer.consume(READ_MAX, 0.1):
            error = message.error()
            partition, offset = message.partition(), message.offset()
            if error is not None:
                worker.failed("watch", error)
                if error.code() in NEVER:
                    worker.tell("complaint", text=f"partition {partition}: {error}")
                continue
            assert partition is not None, "it is a record"
            assert offset is not None, "it is a record"
            identity = identify(message.value(), partition)
            if offset < positions[partition] or identity is None:
                text = f"partition {partition}: {offset} after {positions[partition]}: {identity}"
                worker.tell("complaint", text=text)
                continue
            positions[partition] = offset + 1
            seen.add(partition, identity.writer, identity.sequence, offset)
        silence.note(got_some=bool(seen.spans))
        if seen.spans:
            worker.tell("read", group="", spans=seen.take())
    try:
        consumer.close()
    except KafkaException as raised:
        worker.failed("close", raised.args[0])
    worker.tell("ended", left=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
