"""Records of a partition become Arrow batches of limited size, without loss."""

import datetime

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from broker_layer.kafka.record_batch import Record, build_batch, read_header
from spark_io.topics.offsets import TopicPartition
from spark_io.topics.rows import TopicRows

UTC = datetime.UTC


def records(first: int, count: int) -> list[Record]:
    headers = (("trace", b"1"), ("empty", None))
    return [
        Record(
            n, 1_000 * n, None if n % 2 else b"k%d" % n, b"v" * 10, headers if n % 3 == 0 else ()
        )
        for n in range(first, first + count)
    ]


def rows_of(made: TopicRows, *batches: list[Record]) -> list[dict[str, object]]:
    found = []
    for each in batches:
        data = bytes(build_batch(each))
        found += list(made.add(read_header(data), data, 0, 2**62))
    found += list(made.finish())
    return [row for batch in found for row in batch.to_pylist()]


def test_rows_with_headers() -> None:
    made = TopicRows(TopicPartition("orders", 3), bytes_wanted=1_000, include_headers=True)
    rows = rows_of(made, records(0, 7), records(7, 90), records(100, 1))
    assert [row["offset"] for row in rows] == [*range(97), 100]
    assert rows[3] == {
        "key": None,
        "value": b"v" * 10,
        "topic": "orders",
        "partition": 3,
        "offset": 3,
        "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC),
        "headers": [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}],
    }
    assert rows[4]["headers"] is None
    assert rows[4]["key"] == b"k4"


def test_rows_without_headers() -> None:
    made = TopicRows(TopicPartition("orders", 3), bytes_wanted=1, include_headers=False)
    rows = rows_of(made, records(0, 2), [Record(9, 5, b"", None)])
    assert [list(row) for row in rows] == [
        ["key", "value", "topic", "partition", "offset", "timestamp"]
    ] * 3
    assert (rows[2]["key"], rows[2]["value"]) == (b"", None)


def test_times_beyond_what_spark_holds() -> None:
    made = TopicRows(TopicPartition("orders", 3), bytes_wanted=1, include_headers=False)
    data = bytes(build_batch([Record(n, at, b"", b"") for n, at in enumerate((2**62, -1, 7))]))
    [batch] = made.add(read_header(data), data, 0, 2**62)
    assert batch.column("timestamp").cast("int64").to_pylist() == [2**63 - 1, -1_000, 7_000]
