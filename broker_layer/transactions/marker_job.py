"""Job to write the markers of one transaction.

Leaves sending to `marker_sender`.

Invariants: after `cancel` nothing is reported.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker_layer.transactions.values import Marker, TopicPartition


@dataclass(slots=True)
class MarkerJob:
    """The marker of one transaction; `on_stored` is called for each partition that stored it."""

    transactional_id: str
    marker: Marker
    on_stored: Callable[[TopicPartition], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the job: this broker no longer coordinates the transaction."""
        self.is_cancelled = True

    def report(self, partition: TopicPartition) -> None:
        """Report that a partition stored the marker, or is gone."""
        if not self.is_cancelled:
            self.on_stored(partition)


@dataclass(slots=True)
class MarkerEntry:
    """One partition's part of a job."""

    job: MarkerJob
    partition: TopicPartition
    attempts: int = 0
    absent_since: float | None = None
    """The loop's time at which the topic was first missing from the view."""
