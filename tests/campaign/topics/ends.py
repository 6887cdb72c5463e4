"""Asks where partitions end, with a consumer: what its isolation level lets it read to.

Leaves judging answers to others. The admin client's own question is not used: it brings its process
down when a leader changes at the wrong moment (librdkafka 2.16).
"""

from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition


class Ends:
    """A consumer that only asks; closed at the end of its block."""

    def __init__(self, bootstrap: str, level: IsolationLevel) -> None:
        self.level = level.name.lower()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "ends",
                "isolation.level": self.level,
                "reconnect.backoff.max.ms": 1_000,
            }
        )

    def of(self, topic: str, partition: int, timeout_s: float) -> int:
        """Return one partition's end. Raises KafkaException."""
        place = TopicPartition(topic, partition)
        found = self._consumer.get_watermark_offsets(place, timeout=timeout_s)
        assert found is not None, "it was not asked for what is cached"
        return int(found[1])

    def all(self, topic: str, partitions: int, timeout_s: float) -> dict[int, int]:
        """Return the ends of all partitions. Raises KafkaException at the first that fails."""
        return {each: self.of(topic, each, timeout_s) for each in range(partitions)}

    def known(self, topic: str, partitions: int, timeout_s: float) -> dict[int, int | str]:
        """Return the ends of all partitions, and why not where it was not told."""
        ends: dict[int, int | str] = {}
        for each in range(partitions):
            try:
                ends[each] = self.of(topic, each, timeout_s)
            except KafkaException as raised:
                ends[each] = str(raised.args[0].name())
        return ends

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()
