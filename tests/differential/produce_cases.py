"""Differential cases: appending valid and invalid batches, and sequences.

Leaves transactional batches to `transaction_cases`.
"""

import gzip
from dataclasses import replace
from typing import Final

import cramjam

from tests.differential.batches import (
    APPEND_TIME,
    CONTROL,
    FIRST_TIMESTAMP_MS,
    TRANSACTIONAL,
    Batch,
    message_set,
    records,
)
from tests.differential.run import PRODUCE, Run, new_producer, produce, produce_values, store
from tests.differential.wire import Tree, encode_request

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
FAR_FUTURE_MS: Final = 4_000_000_000_000
SEQUENCE_MAX: Final = 2**31 - 1
BAD_CRC: Final = 0xDEADBEEF
LZ4_FRAME_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic, version 1 with independent blocks of at most 64 KiB, and the check byte of these."""


async def plain(run: Run) -> None:
    """Append without a producer id."""
    topic = await run.topic("plain", partitions=2)
    await produce(run, "produce/first", topic, Batch())
    await produce(run, "produce/second", topic, Batch())
    await produce(run, "produce/acks 1", topic, Batch(), acks=1)
    await produce(run, "produce/acks 2", topic, Batch(), acks=2)
    await produce(run, "produce/base offset is given again", topic, Batch(base_offset=77))
    await produce(run, "produce/unknown topic", run.name("absent"), Batch())
    await produce(run, "produce/invalid topic name", "a b", Batch())
    values = produce_values(topic, Batch(), partition=9)
    await run.ask("produce/unknown partition", PRODUCE, 9, values)
    await run.ask(
        "produce/negative partition", PRODUCE, 9, produce_values(topic, Batch(), partition=-1)
    )
    both: dict[str, Tree] = {
        **produce_values(topic, None),
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": 0, "records": Batch().encode()},
                    {"index": 1, "records": Batch(crc=BAD_CRC).encode()},
                    {"index": 7, "records": Batch().encode()},
                ],
            }
        ],
    }
    await run.ask("produce/three partitions, one right", PRODUCE, 9, both)
    await run.wire("silent").tell(_unanswered(topic))
    await produce(run, "produce/after acks 0", topic, Batch())
    await run.note_end("produce/end after all", topic)


def _unanswered(topic: str) -> bytes:
    return encode_request("Produce", 9, produce_values(topic, Batch(), acks=0, partition=1))


async def malformed(run: Run) -> None:
    """Batches whose contents contradict their header."""
    topic = await run.topic("malformed")
    await store(run, topic, Batch())
    right = Batch()
    wrong: dict[str, bytes | Batch] = {
        "no bytes": b"",
        "short header": right.encode()[:40],
        "truncated": right.encode()[:-3],
        "trailing bytes": right.encode() + b"\0" * 5,
        "bad crc": Batch(crc=BAD_CRC),
        "magic 3": Batch(magic=3),
        "magic 1": message_set(1),
        "magic 0": message_set(0),
        "negative magic": Batch(magic=-1),
        "two batches": right.encode() + right.encode(),
        "no records": Batch(values=()),
        "count too large": Batch(record_count=5),
        "count too small": Batch(record_count=2),
        "negative count": Batch(record_count=-1),
        "last offset delta too large": Batch(last_offset_delta=9),
        "last offset delta too small": Batch(last_offset_delta=1),
        "negative last offset delta": Batch(last_offset_delta=-1),
        "length too large": Batch(length=1000),
        "length too small": Batch(length=20),
        "negative length": Batch(length=-5),
        "control batch": Batch(attributes=CONTROL),
        "append time claimed": Batch(attributes=APPEND_TIME),
        "unused attribute bit": Batch(attributes=0x100),
        "unknown compression": Batch(attributes=6),
        "transactional without producer": Batch(attributes=TRANSACTIONAL),
    }
    for name, data in wrong.items():
        await produce(run, f"produce/{name}", topic, data)
    await run.note_end("produce/end after malformed", topic)
    other = await run.topic("falsely-compressed")
    await produce(run, "produce/not compressed though it says so", other, Batch(attributes=GZIP))


async def compressed(run: Run) -> None:
    """Every compression; the broker keeps the bytes."""
    topic = await run.topic("compressed")
    plain_records = records(Batch())
    kinds = {
        "gzip": (GZIP, gzip.compress(plain_records)),
        "snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(plain_records))),
        "lz4": (LZ4, _lz4_frame(plain_records)),
        "zstd": (ZSTD, bytes(cramjam.zstd.compress(plain_records))),
    }
    for name, (kind, payload) in kinds.items():
        await produce(run, f"produce/{name}", topic, Batch(attributes=kind, payload=payload))
    old = Batch(attributes=ZSTD, payload=kinds["zstd"][1])
    await produce(run, "produce/zstd in version 6", topic, old, version=6)
    await run.note_end("produce/end after compressed", topic)


def _lz4_frame(data: bytes) -> bytes:
    """Return a frame with one independent block, which Kafka requires."""
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return LZ4_FRAME_HEADER + len(block).to_bytes(4, "little") + block + bytes(4)


async def times_and_sizes(run: Run) -> None:
    """Timestamps, limits of size, and keys of compacted topics."""
    topic = await run.topic("small", max_message_bytes="500")
    await produce(run, "produce/just small enough", topic, Batch(values=(b"x" * 400,)))
    await produce(run, "produce/too large", topic, Batch(values=(b"x" * 600,)))
    await produce(run, "produce/far future", topic, Batch(first_timestamp_ms=FAR_FUTURE_MS))
    await produce(run, "produce/no timestamp", topic, Batch(values=(b"x",), first_timestamp_ms=-1))
    odd = Batch(max_timestamp_ms=FIRST_TIMESTAMP_MS - 10)
    await produce(run, "produce/maximum before first timestamp", topic, odd)
    appended = await run.topic("append-time", message_timestamp_type="LogAppendTime")
    await produce(run, "produce/append time", appended, Batch())
    await produce(
        run, "produce/append time, far future", appended, Batch(first_timestamp_ms=FAR_FUTURE_MS)
    )
    compacted = await run.topic("compacted", cleanup_policy="compact")
    await produce(run, "produce/compacted without key", compacted, Batch())
    keyed = Batch(keys=(b"a", b"b", b"a"))
    await produce(run, "produce/compacted with keys", compacted, keyed)


async def sequences(run: Run) -> None:
    """Idempotent producers: gaps, repetitions, epochs."""
    topic = await run.topic("sequences")
    producer = await new_producer(run)
    first = Batch(producer_id=producer, producer_epoch=0, base_sequence=0)

    async def send(
        name: str, *, base_sequence: int = 0, producer_epoch: int = 0, attributes: int = 0
    ) -> None:
        batch = replace(
            first, base_sequence=base_sequence, producer_epoch=producer_epoch, attributes=attributes
        )
        await produce(run, f"sequence/{name}", topic, batch)

    await send("first")
    await send("repeated")
    await send("next", base_sequence=3)
    await send("gap", base_sequence=9)
    await send("next after the gap", base_sequence=6)
    await send("overlapping", base_sequence=7)
    for sequence in (9, 12, 15, 18):
        await send(f"batch at {sequence}", base_sequence=sequence)
    await send("repeated within five", base_sequence=9)
    await send("repeated, long ago", base_sequence=0)
    await send("new epoch must begin at 0", producer_epoch=1, base_sequence=3)
    await send("new epoch", producer_epoch=1)
    await send("old epoch", producer_epoch=0, base_sequence=21)
    await send("new epoch, next", producer_epoch=1, base_sequence=3)
    await send("epoch skipped", producer_epoch=7)
    await send("negative epoch", producer_epoch=-1, base_sequence=3)
    await send("negative sequence", producer_epoch=7, base_sequence=-1)
    await send("transactional without a transaction", attributes=TRANSACTIONAL, producer_epoch=7)
    await run.note_end("sequence/end", topic)


async def unknown_producers(run: Run) -> None:
    """Sequences of producers that the partition does not know, and their overflow."""
    empty = await run.topic("unknown-producer")
    producer = await new_producer(run)
    late = Batch(producer_id=producer, producer_epoch=0, base_sequence=5)
    await produce(run, "sequence/unknown producer, empty partition", empty, late)
    wrapping = await run.topic("wrap")
    await store(run, wrapping, Batch())
    producer = await new_producer(run)
    last = Batch(
        producer_id=producer, producer_epoch=0, base_sequence=SEQUENCE_MAX - 1, values=(b"a", b"b")
    )
    await produce(run, "sequence/unknown producer, late sequence", wrapping, last)
    await produce(run, "sequence/wrapped", wrapping, replace(last, base_sequence=0))
    await produce(run, "sequence/after the wrap", wrapping, replace(last, base_sequence=2))
    across = await run.topic("wrap-inside")
    await store(run, across, Batch())
    producer = await new_producer(run)
    over = Batch(producer_id=producer, producer_epoch=0, base_sequence=SEQUENCE_MAX)
    await produce(run, "sequence/wraps inside a batch", across, over)
    await produce(run, "sequence/wraps inside, next", across, replace(over, base_sequence=2))
    await produce(run, "sequence/wraps inside, repeated", across, over)


async def versions(run: Run) -> None:
    """Send a valid request in every version."""
    topic = await run.topic("produce-versions")
    identity = await run.topic_id(topic)
    for version in range(14):
        target = topic if version < 13 else identity
        data: Batch | bytes = Batch() if version > 2 else message_set(1 if version else 0)
        await run.ask(f"version/Produce {version}", PRODUCE, version, produce_values(target, data))


CASES: Final = (
    plain,
    malformed,
    compressed,
    times_and_sizes,
    sequences,
    unknown_producers,
    versions,
)
