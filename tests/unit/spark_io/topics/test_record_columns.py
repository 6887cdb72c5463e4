"""The fast loop over records returns the parser's records, and leaves damaged batches to the
parser.
"""

from array import array

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.kafka.record_batch import (
    Compression,
    Record,
    RecordBatchError,
    build_batch,
    parse_records,
    read_header,
    stamp,
)
from spark_io.topics.rows import RECORDS_BYTES_MAX, RecordColumns

texts = st.text(max_size=5)
payloads = (
    st.none() | st.binary(max_size=20) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 9_000])
)
bodies = st.tuples(
    st.integers(-(2**40), 2**40) | st.integers(0, 70),
    payloads,
    payloads,
    st.lists(st.tuples(texts, st.none() | st.binary(max_size=70)), max_size=3).map(tuple),
)
deltas = st.integers(1, 3) | st.just(9_000)
compressions = st.sampled_from(Compression)


def batch_of(parts: list[tuple[tuple[object, ...], int]], compression: Compression) -> bytearray:
    offset, records = 1_000, []
    for (timestamp_ms, key, value, headers), delta in parts:
        records.append(Record(offset, timestamp_ms, key, value, headers))  # type: ignore[arg-type]
        offset += delta
    return build_batch(records, compression=compression)


def rows(columns: RecordColumns) -> list[Record]:
    return [
        Record(offset, timestamp_ms, key, value, columns.headers.get(row, ()))
        for row, (offset, timestamp_ms, key, value) in enumerate(
            zip(columns.offsets, columns.timestamps_ms, columns.keys, columns.values, strict=True)
        )
    ]


def parsed(data: bytes) -> list[Record]:
    return list(parse_records(data, bytes_max=RECORDS_BYTES_MAX))


@given(st.lists(st.tuples(bodies, deltas), min_size=1, max_size=20), compressions, st.booleans())
def test_columns_equal_the_parsers_records(
    parts: list[tuple[tuple[object, ...], int]],
    compression: Compression,
    append_time: bool,
) -> None:
    batch = batch_of(parts, compression)
    if append_time:
        stamp(batch, 77)
    data, columns = bytes(batch), RecordColumns()
    columns.add(read_header(data), data, 0, 2**62)
    columns.add(read_header(data), data, 1_001, 1_004)
    within = [record for record in parsed(data) if 1_001 <= record.offset < 1_004]
    assert rows(columns) == parsed(data) + within


@given(
    st.lists(st.tuples(bodies, deltas), min_size=1, max_size=4),
    st.integers(0, 10_000),
    st.integers(0, 255),
)
def test_damaged_batches_go_to_the_parser(
    parts: list[tuple[tuple[object, ...], int]], place: int, byte: int
) -> None:
    batch = batch_of(parts, Compression.NONE)
    batch[61 + place % (len(batch) - 61)] = byte
    data, columns = bytes(batch), RecordColumns()
    try:
        wanted = parsed(data)
    except RecordBatchError:
        with pytest.raises(RecordBatchError):
            columns.add(read_header(data), data, 0, 2**62)
        return
    columns.add(read_header(data), data, 0, 2**62)
    assert rows(columns) == wanted


def test_a_damaged_batch_leaves_columns_of_equal_length() -> None:
    good = bytes(build_batch([Record(5, 1, b"k", b"v", (("h", b"x"),))]))
    columns = RecordColumns()
    columns.add(read_header(good), good, 0, 10)
    broken = bytearray(build_batch([Record(6, 1, b"k", b"v"), Record(7, 1, b"k", b"v")]))
    broken[-1] = 9
    data = bytes(broken)
    with pytest.raises(RecordBatchError):
        columns.add(read_header(data), data, 0, 10)
    assert len(columns.keys) == len(columns.values) == len(columns.timestamps_ms) == len(columns)
    assert columns.offsets[:1] == array("q", [5])
    assert columns.headers[0] == (("h", b"x"),)
