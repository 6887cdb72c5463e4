"""Readable ranges of the partitions of some topics: read once, or updated in the background.

Leaves one partition to `topic_partition`, and the ranges of a query to `topic_ranges`.

Invariants: a topic that was deleted, or deleted and created again, is never treated as the
requested one.

Source: Spark design, "Reading"; topics design, "The mapping".
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker_layer.kafka.record_batch import RecordBatchError
from broker_layer.log.state.state_entry import StateEntryError
from ledger_client.errors import LedgerError
from ledger_client.metadata_failures import translate
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, TopicNotFoundError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicId, TopicRecord
from spark_io.errors import RecreatedError, UnknownTopicError
from spark_io.identities import Identities
from spark_io.topics.topic_access import TopicServices
from spark_io.topics.topic_offsets import Bounds, TopicPartition
from spark_io.topics.topic_partition import PartitionView

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

STARTS_AT_ONCE: Final = 16
TOPICS_WAIT_S: Final = 5.0
RETRY_S: Final = 0.5
UNSEEN_MAX_S: Final = 60.0
"""Time for which a stream continues from the last known state while the cluster does not respond,
in seconds."""

_log = logging.getLogger(__name__)


class TopicsView:
    """Partitions of some topics, in the order of topics and numbers."""

    def __init__(
        self, services: TopicServices, topics: Sequence[str], *, is_committed: bool
    ) -> None:
        self.partitions: dict[TopicPartition, PartitionView] = {}
        self._services = services
        self._topics = topics
        self._is_committed = is_committed
        self._ids: dict[str, TopicId] = {}
        self._starting = asyncio.Semaphore(STARTS_AT_ONCE)
        self._changed = asyncio.Event()
        self._cancels: list[Cancel] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: Exception | None = None

    @property
    def bounds(self) -> Mapping[TopicPartition, Bounds]:
        """Readable offsets of each partition. Raises the error that ended the updates."""
        if self._failure is not None:
            raise self._failure
        return {partition: view.now.bounds for partition, view in self.partitions.items()}

    @property
    def identities(self) -> Identities:
        """Ids of the topics by their names."""
        return {name: topic_id.hex() for name, topic_id in self._ids.items()}

    async def load(self) -> None:
        """Find the topics and read the state of all partitions. Raises UnknownTopicError,
        LedgerError, MetadataError, RecordBatchError, StateEntryError.
        """
        for name in self._topics:
            await self._add(name)
        await asyncio.gather(*[view.settle() for view in self.partitions.values()])

    async def follow(self) -> None:
        """Load, and update the state in the background from then on. Raises as `load`."""
        for name in self._topics:
            self._cancels.append(self._services.topics.watch(name, self._changed.set))
        await self.load()
        for view in self.partitions.values():
            self._begin(self._keep(view))
        self._begin(self._keep_topics())

    async def aclose(self) -> None:
        """Stop the updates, and close all partitions."""
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(*self._tasks)
        for view in self.partitions.values():
            await view.aclose()

    async def _add(self, name: str) -> list[PartitionView]:
        """Add the partitions of a topic that are not known yet; return them."""
        record = await self._record_of(name)
        new: list[PartitionView] = []
        for number in range(len(record.partitions)):
            partition = TopicPartition(name, number)
            if partition not in self.partitions:
                key = PartitionKey(record.topic_id, number)
                committed = self._is_committed
                new.append(PartitionView(self._services, partition, key, is_committed=committed))
        ends = await asyncio.gather(*[self._start(view) for view in new], return_exceptions=True)
        failure = next((each for each in ends if each is not None), None)
        if failure is not None:
            for view in new:
                await view.aclose()
            raise failure
        self.partitions |= {view.partition: view for view in new}
        return new

    async def _start(self, view: PartitionView) -> None:
        async with self._starting:
            await view.start()

    async def _record_of(self, name: str) -> TopicRecord:
        try:
            record, _ = await self._services.topics.get(name, fresh=True)
        except TopicNotFoundError:
            raise UnknownTopicError(name, "does not exist") from None
        if record.is_deleted:
            raise UnknownTopicError(name, "was deleted")
        if self._ids.setdefault(name, record.topic_id) != record.topic_id:
            raise RecreatedError("topic", name, "the query began")
        return record

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_end)
        self._tasks.append(task)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and self._failure is None:
            self._failure = error

    async def _keep_topics(self) -> None:
        seen = _now_s()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), TOPICS_WAIT_S)
            self._changed.clear()
            try:
                for name in self._topics:
                    for view in await self._add(name):
                        self._begin(self._keep(view))
                seen = _now_s()
            except (LedgerError, MetadataError, RecordBatchError, StateEntryError) as error:
                await self._pause_after(error, seen)

    async def _keep(self, view: PartitionView) -> None:
        seen = _now_s()
        while True:
            try:
                await view.follow()
                seen = _now_s()
            except (LedgerError, MetadataError, RecordBatchError, StateEntryError) as error:
                await self._pause_after(error, seen)

    async def _pause_after(self, error: Exception, seen: float) -> None:
        """Pause before a retry; after `UNSEEN_MAX_S` of errors the query fails."""
        if _now_s() - seen > UNSEEN_MAX_S and self._failure is None:
            self._failure = translate(error, None) if isinstance(error, MetadataError) else error
            _log.warning("topics cannot be followed: %s", error)
        await asyncio.sleep(RETRY_S)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
