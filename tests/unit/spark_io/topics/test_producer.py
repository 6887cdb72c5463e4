"""Batches of rows as the stock producer sends them: each value may be null, each codec is ours."""

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")
pytest.importorskip("pyspark", reason="needs the extra `spark`")

from kafka import KafkaProducer
from kafka.record.memory_records import MemoryRecordsBuilder

from broker_layer.kafka.client_codecs import use_own_codecs
from broker_layer.kafka.record_batch import Compression, parse_records, read_header
from spark_io.topics.options import COMPRESSIONS
from spark_io.topics.producer import BATCH_BYTES, NULL, UNCOMPRESSED, Headers

ROWS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"k", b"v" * 500, [("h", b"1"), ("none", None), ("empty", b"")]),
    (None, None, []),
    (b"null", b"null", [("h", b"null")]),
    (b"k", None, [("none", None)]),
    (None, b"", []),
    (b"", b"v" * 500, []),
]


def given(value: bytes | None) -> bytes:
    return NULL if value is None else value


@pytest.mark.parametrize("kind", Compression)
def test_records_of_all_kinds_are_built_with_all_codecs(kind: Compression) -> None:
    use_own_codecs()
    builder = MemoryRecordsBuilder(2, int(kind), BATCH_BYTES)
    for key, value, headers in ROWS:
        builder.append(7, key, given(value), [(name, given(content)) for name, content in headers])
    builder.close()
    batch = bytes(builder.buffer())
    assert read_header(batch).compression is kind
    records = list(parse_records(batch, bytes_max=BATCH_BYTES))
    assert [(row.key, row.value, list(row.headers)) for row in records] == ROWS
    assert {row.timestamp_ms for row in records} == {7}


def test_each_codec_can_be_chosen() -> None:
    """The stock producer asks for a package of each."""
    use_own_codecs()
    offered = KafkaProducer._COMPRESSORS
    assert {name or UNCOMPRESSED for name in offered} == set(COMPRESSIONS)
    assert all(has_codec() for has_codec, _ in offered.values())  # type: ignore[no-untyped-call]  # kafka-python's
