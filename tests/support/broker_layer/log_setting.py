"""A partition's log over bookies in memory, for tests."""

import asyncio
from dataclasses import replace
from random import Random

from broker_layer.kafka.record_batch import (
    NO_PRODUCER,
    Producer,
    Record,
    build_batch,
    parse_records,
    read_header,
)
from broker_layer.log.log_services import LogServices, TailMemory
from broker_layer.log.pending_batches import Appended
from broker_layer.log.topic_configs import LogConfig
from broker_layer.log.topic_log import TopicLog
from ledger_client import ClientConfig, Quorum
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TopicId
from tests.support.ledger_client.cluster import TestCluster

KEY = PartitionKey(TopicId(b"topic id of 16 B"), 0)
CONFIG = LogConfig(
    quorum=Quorum(3, 3, 2),
    segment_bytes=1 << 20,
    segment_ms=3_600_000,
    segment_jitter_ms=0,
    retention_ms=None,
    retention_bytes=None,
    is_compacted=False,
    max_message_bytes=1 << 20,
    uses_append_time=False,
    timestamp_before_max_ms=None,
    timestamp_after_max_ms=None,
    unclean_recovery=False,
)
WINDOW_BYTES_MAX = ClientConfig().window_bytes_max


def batch(*values: bytes, at_ms: int = 1_000, producer: Producer = NO_PRODUCER) -> bytearray:
    records = [Record(n, at_ms + n, None, value, ()) for n, value in enumerate(values)]
    return build_batch(records, producer=producer)


class LogSetting:
    """Setting in which several brokers, each with a separate client, open one partition's log."""

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster
        self.now_ms = 1_000_000
        self.logs: list[TopicLog] = []
        self.failed: list[int] = []

    def services(
        self, tail_bytes: int = 1 << 20, window_bytes_max: int = WINDOW_BYTES_MAX
    ) -> LogServices:
        store = MemoryMetadataStore(self.cluster.server)
        return LogServices(
            client=self.cluster.client(
                add_timeout_s=0.5, metadata_timeout_s=20.0, window_bytes_max=window_bytes_max
            ),
            partitions=PartitionStore(store, Random(3)),
            wall_clock_ms=lambda: self.now_ms,
            rng=Random(4),
            tail=TailMemory(tail_bytes),
        )

    async def take_over(
        self,
        epoch: int,
        config: LogConfig = CONFIG,
        *,
        tail_bytes: int = 1 << 20,
        window_bytes_max: int = WINDOW_BYTES_MAX,
    ) -> TopicLog:
        log = await TopicLog.take_over(
            self.services(tail_bytes, window_bytes_max),
            "orders",
            KEY,
            epoch,
            config,
            on_failed=lambda: self.failed.append(epoch),
        )
        self.logs.append(log)
        return log

    async def aclose(self) -> None:
        for log in self.logs:
            await log.aclose()


def append(
    log: TopicLog, data: bytearray | memoryview, *, coordinator_epoch: int | None = None
) -> asyncio.Future[Appended]:
    """Append a batch as Produce does: a transaction that is not open now is confirmed."""
    header = read_header(data)
    is_open = log.has_open_transaction(header.producer_id, header.producer_epoch)
    return log.append(
        header, data, coordinator_epoch=coordinator_epoch, may_open=lambda: not is_open
    )


async def values(
    log: TopicLog, offset: int = 0, *, bytes_max: int = 1 << 20, committed: bool = False
) -> list[tuple[int, bytes]]:
    """Read to the end of the log; return (offset, value) of each record."""
    found: list[tuple[int, bytes]] = []
    while True:
        result = await log.read(offset, bytes_max, read_committed=committed, at_least_one=True)
        if not result.batches:
            return found
        for data in result.batches:
            header = read_header(data)
            if not header.is_control:
                found += [
                    (record.offset, record.value or b"")
                    for record in parse_records(data, bytes_max=1 << 20)
                ]
            offset = header.last_offset + 1


def small(**changes: int) -> LogConfig:
    return replace(CONFIG, **changes)  # type: ignore[arg-type]
