"""kafka-python reads and writes records of every compression with our own codecs."""

import pytest
from kafka import KafkaProducer, codec
from kafka.errors import CorruptRecordError
from kafka.record import default_records
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from broker_layer.kafka import client_codecs
from broker_layer.kafka.client_codecs import use_own_codecs
from broker_layer.kafka.record_batch import Compression, Record, build_batch, parse_records
from broker_layer.kafka.record_batch.header import seal

RECORDS = [Record(number, 5, b"k", b"value" * 100, ()) for number in range(50)]


@pytest.fixture(autouse=True)
def own_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use them for one test: kafka-python finds packages that a developer's machine may have."""
    monkeypatch.setattr(KafkaProducer, "_COMPRESSORS", dict(KafkaProducer._COMPRESSORS))
    for name in ("gzip", "snappy", "lz4", "zstd"):
        monkeypatch.setattr(codec, f"has_{name}", lambda: False)
        for work in ("encode", "decode"):
            monkeypatch.setattr(default_records, f"{name}_{work}", None)
    use_own_codecs()


@pytest.mark.parametrize("kind", list(Compression))
def test_every_compression_is_read(kind: Compression) -> None:
    packed = build_batch(RECORDS, compression=kind)
    batch = DefaultRecordBatch(packed)
    assert [record.value for record in batch] == [record.value for record in RECORDS]


@pytest.mark.parametrize("kind", list(Compression))
def test_every_compression_is_written(kind: Compression) -> None:
    name = None if kind is Compression.NONE else kind.name.lower()
    is_there, number = KafkaProducer._COMPRESSORS[name]
    assert is_there()  # type: ignore[no-untyped-call]
    builder = DefaultRecordBatchBuilder(2, number, False, -1, -1, -1, 1 << 20)
    for record in RECORDS:
        assert builder.append(record.offset, 5, record.key, record.value, []) is not None
    found = parse_records(bytes(builder.build()), bytes_max=1 << 20)
    assert [record.value for record in found] == [record.value for record in RECORDS]


def test_what_cannot_be_unpacked_is_an_error_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = build_batch(RECORDS, compression=Compression.ZSTD)
    packed[-20:] = bytes(20)
    seal(packed)
    with pytest.raises(CorruptRecordError, match="damaged"):
        list(DefaultRecordBatch(packed))
    monkeypatch.setattr(client_codecs, "UNPACKED_BYTES_MAX", 100)
    with pytest.raises(CorruptRecordError):
        list(DefaultRecordBatch(build_batch(RECORDS, compression=Compression.LZ4)))
