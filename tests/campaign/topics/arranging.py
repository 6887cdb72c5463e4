"""Client calls of a campaign on topics: creation of the topics, and the final checks of health.

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
ASK_EVERY_S: Final = 0.5
PROBE: Final = "probe"
TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "min.insync.replicas": "2",
    "segment.bytes": str(8 * 1024 * 1024),
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Small segments, so that ledgers end and begin during faults."""


def make_topics(bootstrap: str, partitions: int) -> None:
    """Create the topics of a campaign. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, partitions, 3, config=dict(TOPIC_CONFIGS)) for name in (PLAIN, TOKENS)]
    for future in admin.create_topics(topics, operation_timeout=MAKE_S_MAX).values():
        future.result(MAKE_S_MAX)


def probe(bootstrap: str, partitions: int, seconds: float) -> str:
    """Produce to each partition of the plain topic; return "", or why a record was not
    acknowledged.
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


def consumed_by(bootstrap: str, group: str, partitions: int, silent_s: float) -> str:
    """Wait until a group has committed the ends of the plain topic.

    Return "" then, or what is left after a time without commits.
    """
    ends, offsets = Ends(bootstrap, IsolationLevel.READ_UNCOMMITTED), Offsets(bootstrap, group)
    committed, since = -1, time.monotonic()
    with ends, offsets:
        while True:
            try:
                wanted = ends.all(PLAIN, partitions, CALL_S)
                held = offsets.of(PLAIN, partitions, CALL_S)
            except KafkaException as raised:
                left = str(raised)
            else:
                behind = {p: (held.get(p), e) for p, e in wanted.items() if held.get(p, 0) < e}
                if not behind:
                    return ""
                left = f"partition: (committed, end) {behind}"
                if sum(held.values()) > committed:
                    committed, since = sum(held.values()), time.monotonic()
            if time.monotonic() - since > silent_s:
                return left
            time.sleep(ASK_EVERY_S)
