"""Writer of partitions of topics as their leaders do it, without a broker, for tests of reads."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from broker_layer.kafka.record_batch import (
    NO_PRODUCER,
    Compression,
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    read_header,
)
from broker_layer.log.log_services import LogServices, TailMemory
from broker_layer.log.topic_configs import LogConfig
from broker_layer.log.topic_log import TopicLog
from ledger_client import LedgerClient, Quorum
from ledger_client.cluster_access import wall_clock_ms
from metadata.ids import LedgerId
from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import open_store
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TopicId, TopicRecord, new_topic
from metadata.topics.topic_store import TopicStore
from tests.support.broker_layer import log_setting
from tests.until import until

LEADER = 1
# With an ack quorum of one, readers query all three bookies for the LAC.
CONFIG = replace(log_setting.CONFIG, quorum=Quorum(3, 3, 1))


def records(first: int, count: int, size: int = 20, at_ms: int = 1_700_000_000_000) -> list[Record]:
    return [
        Record(n, at_ms + first + n, b"k%d" % (first + n), b"%d " % (first + n) + b"x" * size)
        for n in range(count)
    ]


@dataclass
class WrittenTopic:
    """One topic, its partitions led by this process."""

    name: str
    store: MetadataStore
    client: LedgerClient
    reading_client: LedgerClient
    """Sees what readers of other processes see: `client` has its writers' LAC at once."""
    record: TopicRecord
    config: LogConfig = CONFIG
    epoch: int = 0
    logs: dict[int, TopicLog] = field(default_factory=dict)

    @classmethod
    async def create(
        cls, metadata: str, name: str, partitions: int = 1, *, seed: str = ""
    ) -> "WrittenTopic":
        """Create a topic; its id depends on the name and the seed."""
        rng = Random(name + seed)
        store = await open_store(metadata, rng=rng)
        wanted = new_topic(name, TopicId(rng.randbytes(16)), 1, [LEADER] * partitions, {})
        record = await TopicStore(store, rng).create(wanted)
        return cls(name, store, LedgerClient(metadata), LedgerClient(metadata), record)

    def key(self, partition: int) -> PartitionKey:
        return PartitionKey(self.record.topic_id, partition)

    async def lead(self, partition: int, **changes: int) -> TopicLog:
        """Take over a partition, also from this process."""
        old = self.logs.pop(partition, None)
        if old is not None:
            await old.aclose()
        self.epoch += 1
        services = LogServices(
            client=self.client,
            partitions=PartitionStore(self.store, Random(self.epoch)),
            wall_clock_ms=wall_clock_ms,
            rng=Random(self.epoch),
            tail=TailMemory(),
        )
        self.logs[partition] = await TopicLog.take_over(
            services,
            self.name,
            self.key(partition),
            self.epoch,
            replace(self.config, **changes),  # type: ignore[arg-type]
            on_failed=lambda: None,
        )
        return self.logs[partition]

    async def append(
        self,
        partition: int,
        *batches: Sequence[Record],
        compression: Compression = Compression.NONE,
        producer: Producer = NO_PRODUCER,
        is_transactional: bool = False,
    ) -> None:
        """Append batches one after the other; return once all are confirmed and seen by readers."""
        log = self.logs[partition]
        for batch in batches:
            data = build_batch(
                batch, compression=compression, producer=producer, is_transactional=is_transactional
            )
            await log.append(read_header(data), data, may_open=lambda: is_transactional)
        await self.wait_until_seen(partition)

    async def end_transaction(self, partition: int, kind: ControlKind, producer: Producer) -> None:
        """Append a marker."""
        data = build_control_batch(kind, producer.producer_id, producer.epoch, 0, 1)
        await self.logs[partition].append(read_header(data), data, coordinator_epoch=0)
        await self.wait_until_seen(partition)

    async def wait_until_seen(self, partition: int) -> None:
        """Wait until other clients see all confirmed entries: a LAC reaches bookies later."""
        ledger = self.logs[partition]._roller.ledger
        assert ledger is not None
        last = ledger.writer.last_confirmed
        async with self.reading_client.open_ledger(ledger.writer.id) as reader:
            await reader.wait_confirmed(last - 1, timeout=60)

    async def add_partitions(self, count: int) -> None:
        topics = TopicStore(self.store, Random(7))
        self.record = await topics.change(
            self.name, lambda record: record.with_partitions([LEADER] * count)
        )

    async def delete(self) -> None:
        """Delete the topic as the controller does, except its ledgers."""
        topics = TopicStore(self.store, Random(9))
        await topics.change(self.name, lambda record: record.with_deletion())
        await topics.change(self.name, lambda record: record.as_tombstone())

    async def segments(self, partition: int) -> int:
        record, _ = await PartitionStore(self.store, Random(8)).get(self.key(partition))
        return len(record.segments)

    async def roll(self, partition: int, number: int) -> None:
        """Append until the partition has one more ledger, whose first entries other clients see."""
        before = max(1, await self.segments(partition))
        while await self.segments(partition) <= before:
            await self.append(partition, records(number, 10, 3_000))
            number += 10
            await asyncio.sleep(0.01)
        record, _ = await PartitionStore(self.store, Random(8)).get(self.key(partition))
        await until(lambda: self._is_filled(partition, record.segments[-1].ledger_id))
        await self.wait_until_seen(partition)

    def _is_filled(self, partition: int, ledger_id: LedgerId) -> bool:
        """Return whether something is confirmed in the partition's newest ledger."""
        ledger = self.logs[partition]._roller.ledger
        if ledger is None or ledger.writer.id != ledger_id:
            return False
        return ledger.writer.last_confirmed >= 0

    async def aclose(self) -> None:
        for log in self.logs.values():
            await log.aclose()
        await self.client.aclose()
        await self.reading_client.aclose()
        await self.store.aclose()
