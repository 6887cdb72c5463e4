"""The codecs of our own table for the clients of kafka-python.

kafka-python looks for one package for each of snappy, lz4 and zstd, and cannot read records of
others without them, although cramjam has all three.

Invariants: after `use_own_codecs`, clients of kafka-python in this process compress and decompress
with `record_batch.compression`; records that are damaged, or have more than UNPACKED_BYTES_MAX
bytes, raise one of kafka-python's errors.

Source: KIP-31, KIP-57, KIP-110.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from kafka import KafkaProducer, codec
from kafka.errors import CorruptRecordError
from kafka.record import default_records

from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch.compression import compress, decompress
from broker_layer.kafka.record_batch.header import Compression

UNPACKED_BYTES_MAX: Final = 1 << 30
"""Maximum number of decompressed bytes of one batch. Brokers keep batches of at most 8 MiB, which
may be packed well."""


def use_own_codecs() -> None:
    """Have kafka-python use our codecs in this process."""
    for kind in Compression:
        if kind is Compression.NONE:
            continue
        name = kind.name.lower()
        setattr(codec, f"has_{name}", _has)
        setattr(default_records, f"{name}_encode", _packer(kind))
        setattr(default_records, f"{name}_decode", partial(_unpacked, kind))
        KafkaProducer._COMPRESSORS[name] = (_has, int(kind))  # noqa: SLF001 - has no setter


def _has() -> bool:
    return True


def _packer(kind: Compression) -> Callable[[bytes], bytes]:
    return lambda data: compress(kind, bytes(data))


def _unpacked(kind: Compression, data: bytes) -> memoryview:
    try:
        return decompress(kind, memoryview(data), UNPACKED_BYTES_MAX)
    except RecordBatchError as error:
        raise CorruptRecordError(error.text) from error
