"""Producer of rows: kafka-python's, for each record that Kafka stores, with Kafka's codecs.

Leaves which rows are sent, and when, to `topics.write`; codecs to `client_codecs`.

kafka-python refuses a record without key and value, and a header without value. Its builder of
batches can write both. So the producer is given `NULL` for such a value, and the builder puts null
back.

Invariants: a record is sent as it was given; the number of unacknowledged bytes is limited.

Source: measured: kafka-python 3.0.12, to which it is pinned. `KafkaProducer.send` refuses the
values, and `MemoryRecordsBuilder` finds its builder by name in its module.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaProducer
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecordBatchBuilder

from broker_layer.kafka.client_codecs import use_own_codecs
from broker_layer.kafka.record_batch import Compression
from ledger_client.cluster_access import identity_of
from quire.identity.client_file import kafka_settings
from spark_io.topics.options import TopicWriteOptions

if TYPE_CHECKING:
    from kafka.producer.future import FutureRecordMetadata

UNACKNOWLEDGED_BYTES_MAX: Final = 32 * 1024 * 1024
BATCH_BYTES: Final = 256 * 1024
LINGER_MS: Final = 5
DELIVERY_TIMEOUT_MS: Final = 120_000
REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a producer's request, in bytes; the broker limits the size of records."""
UNCOMPRESSED: Final = Compression.NONE.name.lower()
ROW_BYTES: Final = 64
"""Size that a row counts in addition to its key and value, in bytes."""
NULL: Final = bytes(bytearray(b"null"))
"""A null value on its way through the producer. It is known as this object, not by its bytes."""

Headers = Sequence[tuple[str, bytes | None]]
OutRow = tuple[str, bytes | None, bytes | None, int | None, Headers]
"""Topic, key, value, partition (None: chosen by the key), headers."""


class RowBatchBuilder(DefaultRecordBatchBuilder):
    """Builder of a batch that writes null values."""

    __slots__ = ()

    def append(  # type: ignore[override]  # without names that only look up faster
        self,
        offset: int,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> object:
        """Add a record; return None if the batch has no room for it."""
        restored = [(name, _restored(content)) for name, content in headers]
        add: Callable[..., object] = super().append
        return add(offset, timestamp, key, _restored(value), restored)


memory_records.DefaultRecordBatchBuilder = RowBatchBuilder  # type: ignore[attr-defined]


class Sending:
    """Sender of rows, with a limit on unacknowledged ones."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._sent: deque[tuple[FutureRecordMetadata, int]] = deque()
        self._bytes = 0

    def send(self, row: OutRow) -> None:
        """Send one row, once there is room."""
        topic, key, value, partition, headers = row
        size = ROW_BYTES + len(key or b"") + len(value or b"")
        while self._sent and self._bytes + size > UNACKNOWLEDGED_BYTES_MAX:
            self._wait_for_first()
        given = [(name, NULL if content is None else content) for name, content in headers]
        future = self._producer.send(topic, NULL if value is None else value, key, given, partition)
        self._sent.append((future, size))
        self._bytes += size

    def wait_for_all(self) -> None:
        """Return once all rows are committed."""
        self._producer.flush()
        while self._sent:
            self._wait_for_first()

    def close(self) -> None:
        """Close the producer without waiting."""
        self._producer.close(timeout=0)

    def _wait_for_first(self) -> None:
        future, size = self._sent.popleft()
        future.get(timeout=DELIVERY_TIMEOUT_MS / 1000)
        self._bytes -= size


def producer_of(
    options: TopicWriteOptions, servers: Sequence[str], **transactions: Any
) -> KafkaProducer:
    """Return a producer for rows; with `transactional_id` it appends in transactions."""
    use_own_codecs()
    return KafkaProducer(
        bootstrap_servers=list(servers),
        enable_idempotence=True,
        acks="all",
        compression_type=None if options.compression == UNCOMPRESSED else options.compression,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_request_size=REQUEST_BYTES_MAX,
        allow_auto_create_topics=False,
        metrics_enabled=False,
        **transactions,
        **kafka_settings(identity_of(options.client.metadata)),
    )


def _restored(value: bytes | None) -> bytes | None:
    return None if value is NULL else value
