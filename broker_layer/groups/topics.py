"""Interface of groups to the cluster's view of topics.

Leaves the view to `broker_layer.control.cluster_view`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol


class GroupTopics(Protocol):
    """Names, ids and partition counts of the topics that exist now."""

    @property
    def is_complete(self) -> bool:
        """Whether all topics were read. Before that, a topic that is not shown may exist."""

    def topic_id_of(self, name: str) -> bytes | None:
        """Return the 16 bytes of a topic's id; None if there is no such topic."""

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None when no topic has this id."""

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions; 0 if there is no such topic."""

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics, for regular expressions."""

    def on_topics_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after topics were created, removed or changed; return what cancels that."""
