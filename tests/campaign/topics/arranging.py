"""What a campaign on topics does itself as a client: makes its topics, and sees that all is well.

Leaves running and judging to `runner` and `judge`.
"""

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.campaign.topics.asking import Ends, Offsets
from tests.campaign.topics.payloads import Identity, payload_of
from tests.campaign.topics.work import PLAIN, TOKENS

CALL_S: Final = 10.0
MAKE_S_MAX: Final = 60.0
PROBE: Final = "probe"
TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "min.insync.replicas": "2",
    "segment.bytes": str(8 * 1024 * 1024),
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Small segments: ledgers end and begin while things fail."""


def make_topics(bootstrap: str, partitions: int) -> None:
    """Make the topics of a campaign. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, partitions, 3, config=dict(TOPIC_CONFIGS)) for name in (PLAIN, TOKENS)]
    for future in admin.create_topics(topics, operation_timeout=MAKE_S_MAX).values():
        future.result(MAKE_S_MAX)


def probe(bootstrap: str, partitions: int, seconds: float) -> str:
    """Produce to each partition of the plain topic; return "" once it was acknowledged, else why
    not.
    """
    failures: dict[int, str] = dict.fromkeys(range(partitions), "no answer")

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if partition is not None and error is None:
            failures.pop(partition, None)
        elif partition is not None:
            failures[partition] = str(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": int(seconds * 1000),
        }
    )
    for partition in range(partitions):
        value = payload_of(Identity(PROBE, partition, 0))
        producer.produce(PLAIN, value, partition=partition, on_delivery=on_delivery)
    producer.flush(seconds + 1)
    return str(failures) if failures else ""


def consumed_by(bootstrap: str, group: str, partitions: int, seconds: float) -> str:
    """Wait until a group has committed the ends of the plain topic; return "" then, else what is
    left.
    """
    deadline = time.monotonic() + seconds
    ends, offsets = Ends(bootstrap, IsolationLevel.READ_UNCOMMITTED), Offsets(bootstrap, group)
    with ends, offsets:
        while True:
            left = _left(ends, offsets, partitions)
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.3)


def _left(ends: Ends, offsets: Offsets, partitions: int) -> str:
    try:
        wanted = ends.all(PLAIN, partitions, CALL_S)
        held = offsets.of(PLAIN, partitions, CALL_S)
    except KafkaException as raised:
        return str(raised)
    left = {each: (held.get(each), end) for each, end in wanted.items() if held.get(each, 0) < end}
    return f"partition: (committed, end) {left}" if left else ""
