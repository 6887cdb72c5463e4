"""Tells whether a partition is to be there, by its topic's record as of now.

Leaves making its list of ledgers to `ledger_chain`, and erasing it to `topic_erasing`.

Invariant: what is told was so at some time during the call, whatever this broker had read before.
"""

from broker_layer.control.cluster_view import ClusterView
from metadata.errors import TopicNotFoundError
from metadata.partition_store import PartitionKey
from metadata.topic_store import TopicStore


class WantedPartitions:
    """The partitions of topics that are not deleted."""

    def __init__(self, view: ClusterView, topics: TopicStore) -> None:
        self._view = view
        self._topics = topics

    async def holds(self, key: PartitionKey) -> bool:
        """Tell whether a topic has the partition. Raises MetadataError."""
        name = self._view.topic_name_of(key.topic_id)
        if name is None:
            return False  # whoever leads it has read its topic, or it is deleted by now
        try:
            record, _ = await self._topics.get(name, fresh=True)
        except TopicNotFoundError:
            return False
        is_it = record.topic_id == key.topic_id and not record.is_deleted
        return is_it and key.partition < len(record.partitions)
