"""Records of transactional ids round-trip, and damaged ones are refused."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.transactions.values import (
    EPOCH_MAX,
    TopicPartition,
    Transaction,
    TransactionState,
    decode_transaction,
    encode_transaction,
)
from metadata.errors import MetadataFormatError

INT64 = 2**63 - 1
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PARTITIONS = st.lists(
    st.builds(TopicPartition, TEXT, st.integers(0, 2**31 - 1)), max_size=8, unique=True
)
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=TEXT,
    producer_id=st.integers(0, INT64),
    producer_epoch=st.integers(0, EPOCH_MAX),
    previous_producer_id=st.integers(-1, INT64),
    last_epoch=st.integers(-1, EPOCH_MAX),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(TransactionState),
    partitions=PARTITIONS.map(lambda members: tuple(sorted(members))),
    started_ms=st.integers(-1, INT64),
    changed_ms=st.integers(0, INT64),
)
SAMPLE = Transaction(
    "orders",
    1000,
    5,
    -1,
    4,
    60_000,
    TransactionState.PREPARE_COMMIT,
    (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)),
    1_700_000_000_000,
    1_700_000_000_500,
)


@given(TRANSACTIONS)
def test_a_record_round_trips(transaction: Transaction) -> None:
    assert decode_transaction(encode_transaction(transaction)) == transaction


def test_version_1_bytes_are_stable() -> None:
    assert msgpack.unpackb(encode_transaction(SAMPLE)) == [
        1,
        "orders",
        1000,
        5,
        -1,
        4,
        60_000,
        2,
        [["a", [0, 2]], ["b", [1]]],
        1_700_000_000_000,
        1_700_000_000_500,
    ]


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        decode_transaction(data)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, 2),
        (1, 7),
        (2, -1),
        (3, EPOCH_MAX + 1),
        (4, -2),
        (5, -2),
        (6, -1),
        (7, 7),
        (8, [["a"]]),
        (8, [["a", [-1]]]),
        (8, ["a"]),
        (9, -2),
        (10, None),
    ],
)
def test_a_field_out_of_range_is_refused(position: int, value: object) -> None:
    fields = msgpack.unpackb(encode_transaction(SAMPLE))
    fields[position] = value
    with pytest.raises(MetadataFormatError):
        decode_transaction(msgpack.packb(fields))
