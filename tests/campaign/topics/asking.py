"""Queries of partition ends and of committed offsets, with consumers that do nothing else.

Leaves judging the answers to the callers. The admin client's query of a group's offsets is not
used: it crashes its process if a coordinator has just moved (librdkafka issue 5040).
"""

from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition

REFRESH_MS: Final = 2_000
"""A consumer that saw a partition without a leader asks for its leader again at this interval only.
"""
NONE: Final = -1
"""Offset of a partition for which a group has no committed offset."""


class _Queries:
    """Consumer that is closed at the end of its block."""

    def __init__(self, bootstrap: str, group: str, level: str = "read_committed") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": level,
                "reconnect.backoff.max.ms": 1_000,
                "topic.metadata.refresh.interval.ms": REFRESH_MS,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()


class Ends(_Queries):
    """Consumer for queries of partition ends; closed at the end of its block."""

    def __init__(self, bootstrap: str, level: IsolationLevel) -> None:
        self.level = level.name.lower()
        super().__init__(bootstrap, "ends", self.level)

    def of(self, topic: str, partition: int, timeout_s: float) -> int:
        """Return one partition's end. Raises KafkaException."""
        place = TopicPartition(topic, partition)
        found = self._consumer.get_watermark_offsets(place, timeout=timeout_s)
        assert found is not None, "it was not asked for what is cached"
        return int(found[1])

    def all(self, topic: str, partitions: int, timeout_s: float) -> dict[int, int]:
        """Return the ends of all partitions. Raises KafkaException at the first that fails."""
        return {number: self.of(topic, number, timeout_s) for number in range(partitions)}

    def known(self, topic: str, partitions: int, timeout_s: float) -> dict[int, int | str]:
        """Return the ends that were received, and the errors of the other partitions."""
        ends: dict[int, int | str] = {}
        for number in range(partitions):
            try:
                ends[number] = self.of(topic, number, timeout_s)
            except KafkaException as raised:
                ends[number] = str(raised.args[0].name())
        return ends


class Offsets(_Queries):
    """Consumer for queries of a group's offsets; it never joins the group, and is closed with its
    block.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        super().__init__(bootstrap, group)

    def of(self, topic: str, partitions: int, timeout_s: float) -> dict[int, int]:
        """Return the committed offsets, NONE where there is none.

        A partition whose answer is an error is left out. Raises KafkaException.
        """
        places = [TopicPartition(topic, number) for number in range(partitions)]
        answers = self._consumer.committed(places, timeout=timeout_s)
        return {
            answer.partition: max(NONE, answer.offset) for answer in answers if answer.error is None
        }
