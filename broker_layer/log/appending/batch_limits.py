"""Checks of a client's batch against the settings of its topic: size, keys and times.

Leaves checks of the bytes to `kafka.record_batch`, and sequences to `partition_state`.

Invariant: a refusal for single records names them, so that clients can distinguish them from
the other records of the batch. A batch with more than KEYED_RECORDS_MAX records, KEYED_BYTES_MAX
bytes or RECORD_ERRORS_MAX refused records is refused with fewer names or none.

Source: KIP-467 (errors of records); KIP-937 (bounds of times).
"""

from collections.abc import Callable, Iterator
from typing import Final

from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError, RecordError
from broker_layer.kafka.record_batch import (
    Record,
    RecordBatchHeader,
    keyless_records,
    parse_records,
)
from broker_layer.log.settings.log_config import LogConfig

KEYED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum number of decompressed bytes in one batch of a compacted topic, where each record is
checked for a key."""
KEYED_RECORDS_MAX: Final = 50_000
"""Maximum number of records in such a batch. The check blocks the event loop; this many records
take about 0.1 s."""
RECORD_ERRORS_MAX: Final = 1_000
"""Maximum number of refused records that an answer names for one batch."""

Batch = bytes | bytearray | memoryview


def check_limits(config: LogConfig, header: RecordBatchHeader, data: Batch, now_ms: int) -> None:
    """Raise TopicError if a topic with these settings does not accept the batch."""
    size = len(data)
    if size > config.max_message_bytes:
        text = (
            f"the batch has {size} B, and the topic's max.message.bytes is "
            f"{config.max_message_bytes}: send smaller batches, or raise max.message.bytes"
        )
        raise TopicError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if config.is_compacted:
        _check_keys(header, data)
    if config.uses_append_time:
        return
    after_ms, before_ms = config.timestamp_after_max_ms, config.timestamp_before_max_ms
    if after_ms is not None and header.max_timestamp_ms > now_ms + after_ms:
        time_ms, latest_ms = header.max_timestamp_ms, now_ms + after_ms
        text = f"a record's time, {time_ms}, is more than {after_ms} ms ahead of the broker's clock"
        raise _untimely(header, data, text, lambda each: each > latest_ms)
    if before_ms is not None and 0 <= header.first_timestamp_ms < now_ms - before_ms:
        time_ms, earliest_ms = header.first_timestamp_ms, now_ms - before_ms
        text = f"a record's time, {time_ms}, is more than {before_ms} ms behind the broker's clock"
        raise _untimely(header, data, text, lambda each: 0 <= each < earliest_ms)


def _check_keys(header: RecordBatchHeader, data: Batch) -> None:
    try:
        keyless = keyless_records(
            data, header, records_max=KEYED_RECORDS_MAX, bytes_max=KEYED_BYTES_MAX
        )
    except RecordBatchError as error:
        raise TopicError(error.code, error.text) from error
    if keyless:
        text = (
            f"{len(keyless)} records have no key, but the topic is compacted: give every record a "
            "key"
        )
        records = [
            RecordError(index, "the record has no key, but the topic is compacted")
            for index in keyless[:RECORD_ERRORS_MAX]
        ]
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, text, records)


def _untimely(
    header: RecordBatchHeader, data: Batch, text: str, is_wrong: Callable[[int], bool]
) -> TopicError:
    records: list[RecordError] = []
    try:
        for index, record in enumerate(_opened(header, data)):
            if is_wrong(record.timestamp_ms) and len(records) < RECORD_ERRORS_MAX:
                what = f"the record's time, {record.timestamp_ms}, is out of bounds"
                records.append(RecordError(index, what))
    except RecordBatchError:
        records = []  # its records cannot be read: the batch is refused as a whole
    return RecordsRefusedError(ErrorCode.INVALID_TIMESTAMP, text, records)


def _opened(header: RecordBatchHeader, data: Batch) -> Iterator[Record]:
    if header.record_count > KEYED_RECORDS_MAX:
        return iter(())
    return parse_records(data, bytes_max=KEYED_BYTES_MAX, with_headers=False)
