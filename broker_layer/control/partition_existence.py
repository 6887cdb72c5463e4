"""Check whether a partition exists in the present record of its topic.

Leaves creating the partition's list of ledgers to `ledger_list`, and erasing it to
`topic_erasing`.

A record names all partitions of its topic, and many of them are claimed together. So one read
serves all callers that were waiting before it was sent.

Invariant: the answer was true at some time during the call, even if an earlier read differs.
"""

import asyncio

from broker_layer.control.cluster_view import ClusterView
from metadata.errors import TopicNotFoundError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore

Reading = asyncio.Task[TopicRecord | None]


class PartitionExistence:
    """Checks of partitions, with shared reads of topic records."""

    def __init__(self, view: ClusterView, topics: TopicStore) -> None:
        self._view = view
        self._topics = topics
        self._due: dict[str, Reading] = {}
        """Reads that were not sent yet, by topic."""
        self._sent: dict[str, Reading] = {}

    async def check(self, key: PartitionKey) -> bool:
        """Return whether a topic has the partition. Raises MetadataError."""
        name = self._view.topic_name_of(key.topic_id)
        if name is None:
            return False  # a leader has read the topic, so the topic was deleted since
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
        """Read a record after the read before it has ended; return None if there is no record."""
        if name in self._sent:
            await asyncio.gather(self._sent[name], return_exceptions=True)
        self._sent[name] = self._due.pop(name)
        try:
            return (await self._topics.get(name, fresh=True))[0]
        except TopicNotFoundError:
            return None
        finally:
            del self._sent[name]
