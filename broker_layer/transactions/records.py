"""Codec of the records that a coordinator stores for its transactional ids.

Leaves their order and durability to `broker_layer.log.state_log`.

Format: a msgpack array. Version 1:

| position | field |
|---|---|
| 0 | format version, 1 |
| 1 | transactional id, text |
| 2 | producer id |
| 3 | producer epoch, 0 to 32767 |
| 4 | previous producer id, or -1 |
| 5 | epoch before the last bump that the producer requested, or -1 |
| 6 | timeout of its transactions, ms |
| 7 | state, 0 to 6: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, -Abort, Dead |
| 8 | partitions: array of [topic, array of partition numbers], in order |
| 9 | start of the transaction, ms since 1970, or -1 |
| 10 | last change, ms since 1970 |

A record replaces all earlier ones of its transactional id; Dead removes the id.

Invariants: decoding any bytes returns a transaction or raises MetadataFormatError.
"""

from itertools import groupby
from typing import Final

from broker_layer.transactions.values import (
    EPOCH_MAX,
    TopicPartition,
    Transaction,
    TransactionState,
)
from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    int_of,
    pack,
    text_of,
    unpack_versioned,
)

RECORD_VERSION: Final = 1
_WHAT: Final = "a transaction's record"
_FIELD_COUNT: Final = 11
_INT32_MAX: Final = 0x7FFF_FFFF
_INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


def encode_transaction(transaction: Transaction) -> bytes:
    """Return the record of a transactional id."""
    topics: list[Packed] = [
        [topic, [partition for _, partition in members]]
        for topic, members in groupby(transaction.partitions, key=lambda member: member.topic)
    ]
    return pack(
        _WHAT,
        [
            RECORD_VERSION,
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.previous_producer_id,
            transaction.last_epoch,
            transaction.timeout_ms,
            int(transaction.state),
            topics,
            transaction.started_ms,
            transaction.changed_ms,
        ],
    )


def decode_transaction(record: bytes) -> Transaction:
    """Return the transaction in a record. Raises MetadataFormatError."""
    fields = unpack_versioned(_WHAT, record, RECORD_VERSION, _FIELD_COUNT)
    try:
        return Transaction(
            transactional_id=text_of(fields[1]),
            producer_id=int_of(fields[2], 0, _INT64_MAX),
            producer_epoch=int_of(fields[3], 0, EPOCH_MAX),
            previous_producer_id=int_of(fields[4], -1, _INT64_MAX),
            last_epoch=int_of(fields[5], -1, EPOCH_MAX),
            timeout_ms=int_of(fields[6], 0, _INT32_MAX),
            state=TransactionState(
                int_of(fields[7], TransactionState.EMPTY, TransactionState.DEAD)
            ),
            partitions=_partitions_of(fields[8]),
            started_ms=int_of(fields[9], -1, _INT64_MAX),
            changed_ms=int_of(fields[10], 0, _INT64_MAX),
        )
    except FieldError as error:
        raise MetadataFormatError(_WHAT, str(error)) from error


def _partitions_of(field: Packed) -> tuple[TopicPartition, ...]:
    partitions = []
    for entry in array_of(field):
        topic = array_of(entry)
        if len(topic) != 2:  # noqa: PLR2004 - a name and its numbers
            raise FieldError("a topic is not an array of its name and its partitions")
        name = text_of(topic[0])
        partitions += [
            TopicPartition(name, int_of(number, 0, _INT32_MAX)) for number in array_of(topic[1])
        ]
    return tuple(partitions)
