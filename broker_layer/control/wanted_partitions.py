"""Tells whether a partition is to be there, by its topic's record as of now.

Leaves making its list of ledgers to `ledger_chain`, and erasing it to `topic_erasing`.

A record holds all partitions of its topic, and many of them are claimed together: one read of it
serves all who asked before it was sent.

Invariant: what is told was so at some time during the call, whatever this broker had read before.
"""

import asyncio

from broker_layer.control.cluster_view import ClusterView
from metadata.errors import TopicNotFoundError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore

Reading = asyncio.Task[TopicRecord | None]


class WantedPartitions:
    """The partitions of topics that are not deleted."""

    def __init__(self, view: ClusterView, topics: TopicStore) -> None:
        self._view = view
        self._topics = topics
        self._due: dict[str, Reading] = {}
        """Reads that are not sent yet, by topic."""
        self._sent: dict[str, Reading] = {}

    async def holds(self, key: PartitionKey) -> bool:
        """Tell whether a topic has the partition. Raises MetadataError."""
        name = self._view.topic_name_of(key.topic_id)
        if name is None:
            return False  # whoever leads it has read its topic, or it is deleted by now
        reading = self._due.get(name)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(name))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._due[name] = reading
        record = await asyncio.shield(reading)
        if record is None or record.topic_id != key.topic_id or record.is_deleted:
            return False
        return key.partition < len(record.partitions)

    async def _read(self, name: str) -> TopicRecord | None:
        """Read a record once the read before has ended; None if there is none."""
        if name in self._sent:
            await asyncio.gather(self._sent[name], return_exceptions=True)
        self._sent[name] = self._due.pop(name)
        try:
            return (await self._topics.get(name, fresh=True))[0]
        except TopicNotFoundError:
            return None
        finally:
            del self._sent[name]
