"""Table of a partition's leader epochs: where each began and ended in the log.

Leaves the authoritative list of leaderships to `metadata.topics.partition`.

Invariants: epochs rise strictly; start offsets never fall. The table has at most EPOCHS_MAX
entries. Beyond that, leaderships without records are removed first, which changes no end offset;
then the oldest are removed, which has the same effect as retention.

Source: KIP-101, KIP-320 (OffsetForLeaderEpoch).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from broker_layer.kafka.primitives import NO_EPOCH, NO_OFFSET
from metadata.topics.partition import EpochStart

EPOCHS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class EpochTable:
    """The start offset of each leader epoch of a log; immutable."""

    starts: tuple[EpochStart, ...] = ()

    @classmethod
    def of(cls, starts: Iterable[EpochStart]) -> Self:
        """Return the table of `starts`, which must be in order."""
        table = cls(_bounded(tuple(starts)))
        assert table.is_ordered
        return table

    @property
    def is_ordered(self) -> bool:
        """Whether epochs rise strictly and start offsets never fall."""
        return all(
            before.epoch < after.epoch and before.start_offset <= after.start_offset
            for before, after in zip(self.starts, self.starts[1:], strict=False)
        )

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; NO_EPOCH in an empty table."""
        return self.starts[-1].epoch if self.starts else NO_EPOCH

    def with_start(self, epoch: int, start_offset: int) -> Self:
        """Return the table with a new leadership that begins at the end of the log.

        Entries are removed if they start above that end, because an unclean recovery cut the log,
        or if their epoch is not lower.
        """
        kept = tuple(
            start
            for start in self.starts
            if start.epoch < epoch and start.start_offset <= start_offset
        )
        return type(self)(_bounded((*kept, EpochStart(epoch, start_offset))))

    def without_below(self, log_start_offset: int) -> Self:
        """Return the table of a log that begins at `log_start_offset`.

        Of the epochs that began at or below it, only the newest stays, with that offset as start.
        """
        above = [start for start in self.starts if start.start_offset > log_start_offset]
        below = len(self.starts) - len(above)
        if not below:
            return self
        first = EpochStart(self.starts[below - 1].epoch, log_start_offset)
        return type(self)((first, *above))

    def end_of_epoch(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest leadership that is not above `epoch`.

        The end offset is the start of the next leadership, or the log's end. An epoch below all
        known ones ends at the start of the first known one. For NO_EPOCH, an epoch above all known
        ones, or an empty table the result is (NO_EPOCH, NO_OFFSET).
        """
        if epoch == NO_EPOCH or epoch > self.latest_epoch or not self.starts:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        position = sum(1 for start in self.starts if start.epoch <= epoch)
        end_offset = self.starts[position].start_offset
        return (self.starts[position - 1].epoch if position else epoch), end_offset


def _bounded(starts: tuple[EpochStart, ...]) -> tuple[EpochStart, ...]:
    if len(starts) <= EPOCHS_MAX:
        return starts
    nexts = (*(start.start_offset for start in starts[1:]), None)
    written = [
        start for start, after in zip(starts, nexts, strict=True) if start.start_offset != after
    ]
    return tuple(written[-EPOCHS_MAX:])
