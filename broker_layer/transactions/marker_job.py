"""Holds one transaction's markers while they are under way.

Leaves their way to `marker_sender`.

Invariants: after `cancel` nothing is reported.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker_layer.transactions.values import Marker, TopicPartition


@dataclass(slots=True)
class MarkerJob:
    """The marker of one transaction; `on_stored` hears of each partition once it holds it."""

    transactional_id: str
    marker: Marker
    on_stored: Callable[[TopicPartition], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Give up: this broker no longer decides for the transaction."""
        self.is_cancelled = True

    def report(self, partition: TopicPartition) -> None:
        """Say that a partition holds the marker, or is gone."""
        if not self.is_cancelled:
            self.on_stored(partition)


@dataclass(slots=True)
class MarkerEntry:
    """One partition's part of a job."""

    job: MarkerJob
    partition: TopicPartition
    attempts: int = 0
    absent_since: float | None = None
    """The loop's time since which the topic is missing from the view."""
