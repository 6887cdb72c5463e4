"""What groups need to know of topics: the seam to the cluster's view.

Leaves keeping that view to the control side of the broker.
"""

from collections.abc import Callable, Iterable
from typing import Protocol


class GroupTopics(Protocol):
    """Names, ids and partition counts of the topics that exist now."""

    @property
    def is_complete(self) -> bool:
        """Whether every topic was read: before that, a topic that is not here may exist."""
        ...

    def topic_id_of(self, name: str) -> bytes | None:
        """Return the 16 bytes of a topic's id; None when there is no such topic."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None when no topic has this id."""
        ...

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has; 0 when there is no such topic."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, for regular expressions."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after topics came, went or grew; returns what ends that."""
        ...
