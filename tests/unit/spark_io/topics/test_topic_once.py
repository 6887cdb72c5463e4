"""Rows that tasks hand to the driver, and their limit."""

from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")
pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from kafka.structs import OffsetAndMetadata

from spark_io.errors import OldBatchError, OtherQueryError, SchemaError, TooManyRowsError
from spark_io.topics.options import TopicWriteOptions
from spark_io.topics.write import (
    HELD_BYTES_MAX,
    BatchName,
    Columns,
    HeldRows,
    append_once,
    hold_rows,
    is_appended,
    rows_of,
)

OPTIONS = TopicWriteOptions.of(
    {"metadata": "zk://127.0.0.1:1/none", "topic": "t", "exactlyOnce": "true"}
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VALUES = Columns(has_key=False, has_topic=False, has_partition=False, has_headers=False)


def values(*rows: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(rows, pa.binary())})


def test_rows_of_all_batches_are_held_in_order() -> None:
    held = hold_rows([values(b"a", b"b"), values(b"c")], OPTIONS, VALUES)
    table = pa.ipc.open_stream(held.stream).read_all()
    assert table.column("value").to_pylist() == [b"a", b"b", b"c"]
    assert hold_rows([], OPTIONS, VALUES).stream == b""


def test_a_row_that_cannot_be_a_record_is_refused_in_its_task() -> None:
    headers = pa.array([[{"key": None, "value": b"1"}]], HEADERS)
    rows = pa.record_batch({"value": [b"a"], "headers": headers})
    with pytest.raises(SchemaError, match="a header has no key"):
        hold_rows([rows], OPTIONS, replace(VALUES, has_headers=True))


def test_a_row_may_be_null_and_a_header_without_value() -> None:
    headers = pa.array([[{"key": "h", "value": None}], None], HEADERS)
    rows = pa.record_batch({"value": pa.array([b"a", None], pa.binary()), "headers": headers})
    columns = replace(VALUES, has_headers=True)
    assert list(rows_of(rows, columns, "t")) == [
        ("t", None, b"a", None, [("h", None)]),
        ("t", None, None, None, []),
    ]
    assert hold_rows([rows], OPTIONS, columns).stream


def test_rows_beyond_the_limit_are_refused_in_the_task_and_on_the_driver() -> None:
    big = values(b"x" * (HELD_BYTES_MAX // 2))
    with pytest.raises(TooManyRowsError, match="maxOffsetsPerTrigger"):
        hold_rows([big, big], OPTIONS, VALUES)
    halves = [HeldRows(b"x" * (HELD_BYTES_MAX // 2 + 1), "q")] * 2
    with pytest.raises(TooManyRowsError, match="at least once"):
        append_once(halves, OPTIONS, VALUES, ("h:1",), BatchName("q", 0, "q"))


def test_only_the_last_number_of_the_same_query_is_known_as_appended() -> None:
    name = BatchName("nightly", 3, "q")
    assert not is_appended(None, name, "t")
    assert not is_appended(OffsetAndMetadata(2, "q", -1), name, "t")
    assert is_appended(OffsetAndMetadata(3, "q", -1), name, "t")
    with pytest.raises(OldBatchError, match=r"batch 3 of .* older than batch 4.* topic 't'"):
        is_appended(OffsetAndMetadata(4, "q", -1), name, "t")


@pytest.mark.parametrize("last", [0, 3, 9])
@pytest.mark.parametrize(("owner", "said"), [("other", "query other"), ("", "jobs without")])
def test_the_numbers_of_another_query_are_refused(last: int, owner: str, said: str) -> None:
    with pytest.raises(OtherQueryError, match=f"{said}.* batch is {last}.*another txnAppId"):
        is_appended(OffsetAndMetadata(last, owner, -1), BatchName("nightly", 3, "q"), "t")
