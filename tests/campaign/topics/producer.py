"""Process that produces with an idempotent producer, and records the acknowledgements.

Leaves judging to `judge`.

It produces as fast as records are acknowledged, unless a rate is given. The records in flight are
limited for each partition, so one that is not available delays no other.

Invariants: every acknowledgement is in the history before more records are produced. After a fatal
error it continues as another writer, whose records have other names.
"""

import sys
import time
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.campaign.topics.payloads import payload_at, prefix_of
from tests.campaign.topics.spans import SpanMaker
from tests.campaign.topics.work import PLAIN, Pace, Worker

IN_FLIGHT_MAX: Final = 30_000
"""Limit for all partitions together; less than the client's own queue."""
BURST: Final = 200
POLL_S: Final = 0.005
END_S: Final = 120.0
DELIVERY_TIMEOUT_MS: Final = 600_000
COMPRESSIONS: Final = ("none", "lz4", "zstd", "gzip", "snappy")


class ProducerRun:
    """One producer, until it ends or fails."""

    def __init__(self, worker: Worker, life: int) -> None:
        self.is_dead = False
        self._worker = worker
        options = worker.options
        self._writer = f"{options.name}.{options.run}.{life}"
        self._rng = options.rng
        self._sequences = [0] * options.partitions
        self._in_flight = [0] * options.partitions
        self._room = IN_FLIGHT_MAX // options.partitions
        self._acked = SpanMaker()
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "client.id": options.name,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2 * IN_FLIGHT_MAX,
                "compression.type": self._rng.choice(COMPRESSIONS),
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 1_000,
                "error_cb": self._on_error,
            }
        )

    def go(self, pace: Pace) -> None:
        """Produce until the stop, or until the producer is not usable any more."""
        while not self._worker.is_stopping and not self.is_dead:
            room = [p for p, count in enumerate(self._in_flight) if count + BURST <= self._room]
            if room and pace.may_go(BURST):
                self._produce_some(self._rng.choice(room))
                self._poll(0)
            else:
                self._poll(POLL_S)

    def end(self) -> int:
        """Wait for records in flight; return how many are left."""
        deadline = time.monotonic() + END_S
        while any(self._in_flight) and not self.is_dead and time.monotonic() < deadline:
            self._poll(0.05)
        return 0 if self.is_dead else sum(self._in_flight)

    def _produce_some(self, partition: int) -> None:
        prefix, first = prefix_of(self._writer, partition), self._sequences[partition]
        for sequence in range(first, first + BURST):
            try:
                self._producer.produce(
                    PLAIN,
                    payload_at(prefix, sequence),
                    partition=partition,
                    on_delivery=partial(self._on_delivery, partition, sequence),
                )
            except KafkaException as raised:
                self._worker.failed("producer", raised.args[0])
                self.is_dead = True
                return
            self._sequences[partition] += 1
            self._in_flight[partition] += 1

    def _poll(self, seconds: float) -> None:
        self._worker.alive()
        self._producer.poll(seconds)
        if self._acked.spans:
            self._worker.tell("acked", spans=self._acked.take())

    def _on_delivery(
        self, partition: int, sequence: int, error: KafkaError | None, message: Message
    ) -> None:
        self._in_flight[partition] -= 1
        if error is not None:
            self._worker.failed("produce", error)
            return
        offset = message.offset()
        assert offset is not None, "it was delivered"
        self._acked.add(partition, self._writer, sequence, offset)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._worker.failed("producer", error)
            self.is_dead = True


def main() -> int:
    """Produce until SIGTERM."""
    worker = Worker("produces to the plain topic")
    pace = Pace(worker.options.records_per_s)
    left, life = 0, 0
    while not worker.is_stopping:
        run = ProducerRun(worker, life)
        run.go(pace)
        left = run.end()
        life += 1
    worker.tell("ended", left=left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
