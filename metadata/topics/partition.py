"""Immutable list of a partition's ledgers, the allowed changes, and its bytes.

Leaves storing it, by compare-and-set, to `metadata.topics.partition_store`, and the partition's
leader to `metadata.topics.topic`.

A segment is one ledger of the partition. A segment's offsets run from `base_offset` to below
`end_offset`, with gaps where nothing was written. The newest segments are in the record; older ones
are in chunks, numbered from 0. The record's chunks are `first_chunk` to below `next_chunk`. The
first `skipped` segments of the first chunk no longer belong to the partition.

Invariants: the leader epoch, the epochs and the base offsets only grow along the list; segments in
chunks have ended and are older than those in the record; the stored form stays below 200 KB.

Source: topics design, "The mapping"; Kafka's KIP-101 and KIP-320; protocol rule 11.6.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from metadata.errors import StaleLeaderEpochError
from metadata.ids import LedgerId, UpdateToken
from metadata.records import (
    Bytes,
    Count,
    Ms,
    array,
    codec_of,
    codec_of_one,
    row_of,
    whole,
)
from metadata.topics.topic import NO_EPOCH, NO_TOKEN, LastEpoch, LeaderEpoch, TopicId

SEGMENTS_IN_RECORD_MAX: Final = 1_000
SEGMENTS_PER_CHUNK: Final = 500
EPOCHS_MAX: Final = 5_000
"""Maximum number of leader epochs in the record; above it, the oldest are dropped."""
CHUNK_NUMBER_MAX: Final = 10**7 - 1
NO_TIMESTAMP: Final = -1
"""Timestamp of a record without one."""

_Chunk = Annotated[int, whole(0, CHUNK_NUMBER_MAX)]


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """Permanent name of one partition."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Offset of the first record of a leader epoch, or of the next record if the epoch has none."""

    epoch: LeaderEpoch
    start_offset: Count


@dataclass(frozen=True, slots=True)
class PartitionSegment:
    """One ledger of a partition. End, bytes and largest timestamp of an open segment are
    unknown.
    """

    ledger_id: LedgerId
    base_offset: Count
    epoch: LeaderEpoch
    created_ms: Ms
    end_offset: Count | None = None
    bytes: Bytes | None = None
    max_timestamp_ms: Annotated[int, whole(NO_TIMESTAMP, unit="ms")] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the segment's end is unknown."""
        return self.end_offset is None

    def is_below(self, offset: int) -> bool:
        """Return whether the segment has ended and contains nothing at or above an offset."""
        return self.end_offset is not None and self.end_offset <= offset


def _check_segment(segment: PartitionSegment) -> None:
    if segment.end_offset is not None and segment.end_offset < segment.base_offset:
        raise ValueError(f"a segment from {segment.base_offset} ends at {segment.end_offset}")


_SEGMENTS: Final = array(row_of(PartitionSegment, _check_segment))


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One partition's list of ledgers, as the cluster agreed on it. Change it only through its
    methods.
    """

    leader_epoch: LastEpoch = NO_EPOCH
    """Epoch of the last leader that claimed the partition; NO_EPOCH if none has."""
    log_start_offset: Count = 0
    epochs: tuple[EpochStart, ...] = ()
    segments: Annotated[tuple[PartitionSegment, ...], _SEGMENTS] = ()
    first_chunk: _Chunk = 0
    next_chunk: _Chunk = 0
    skipped: Annotated[int, whole(0, SEGMENTS_PER_CHUNK)] = 0
    token: UpdateToken = NO_TOKEN

    @property
    def has_chunks(self) -> bool:
        """Whether older segments are outside the record."""
        return self.first_chunk < self.next_chunk

    @property
    def last_segment(self) -> PartitionSegment | None:
        """The newest segment, None when there is none."""
        return self.segments[-1] if self.segments else None

    def claimed(self, epoch: int) -> "PartitionRecord":
        """Claim the partition for an epoch. Raises StaleLeaderEpochError unless the epoch is above
        the last one.
        """
        if epoch <= self.leader_epoch:
            raise StaleLeaderEpochError(epoch, self.leader_epoch)
        return replace(self, leader_epoch=epoch)

    def with_epoch_start(self, epoch: int, offset: int) -> "PartitionRecord":
        """Record the offset at which a leader epoch begins; above EPOCHS_MAX, drop the oldest
        epochs.
        """
        if self.epochs:
            assert epoch > self.epochs[-1].epoch, "epochs grow along the list"
            assert offset >= self.epochs[-1].start_offset, "offsets grow along the list"
        epochs = (*self.epochs, EpochStart(epoch, offset))[-EPOCHS_MAX:]
        return replace(self, epochs=epochs)

    def with_segment(self, segment: PartitionSegment) -> "PartitionRecord":
        """Add the ledger to which the leader writes next."""
        last = self.last_segment
        if last is not None:
            assert segment.epoch >= last.epoch, "epochs grow along the list"
            below = last.base_offset if last.end_offset is None else last.end_offset
            assert segment.base_offset >= below, "offsets grow along the list"
        return replace(self, segments=(*self.segments, segment))

    def with_segment_ended(
        self,
        ledger_id: LedgerId,
        end_offset: int,
        size_bytes: int,
        max_timestamp_ms: int | None,
    ) -> "PartitionRecord":
        """Record the end of a segment whose ledger is closed."""
        return self._with_changed(
            ledger_id, lambda segment: _ended(segment, end_offset, size_bytes, max_timestamp_ms)
        )

    def with_unclean_end(
        self,
        ledger_id: LedgerId,
        end_offset: int,
        size_bytes: int,
        max_timestamp_ms: int | None,
    ) -> "PartitionRecord":
        """Record the end of the last segment after an unclean recovery. The end may be below
        offsets that were committed before (rule 11.6); epoch starts and the log start beyond it
        move back to it.
        """
        assert self.segments, "an unclean recovery needs a ledger"
        assert self.segments[-1].ledger_id == ledger_id, "only the last ledger is recovered"
        ended = _ended(self.segments[-1], end_offset, size_bytes, max_timestamp_ms)
        return replace(
            self,
            segments=(*self.segments[:-1], ended),
            epochs=tuple(
                EpochStart(old.epoch, min(old.start_offset, end_offset)) for old in self.epochs
            ),
            log_start_offset=min(self.log_start_offset, end_offset),
        )

    def without_segment(self, ledger_id: LedgerId) -> "PartitionRecord":
        """Remove a segment that proved to be empty."""
        left = tuple(segment for segment in self.segments if segment.ledger_id != ledger_id)
        assert len(left) < len(self.segments), "it is in the record"
        return replace(self, segments=left)

    def with_log_start(self, offset: int) -> "PartitionRecord":
        """Move the log's start up, never down; drop the epochs that end at or below it."""
        start = max(self.log_start_offset, offset)
        ended = sum(1 for epoch in self.epochs if epoch.start_offset <= start)
        return replace(self, log_start_offset=start, epochs=self.epochs[max(0, ended - 1) :])

    def without_segments_below(
        self, log_start: int
    ) -> tuple["PartitionRecord", tuple[PartitionSegment, ...]]:
        """Remove the ended segments below an offset; return them too. Removes nothing while there
        are chunks: call `without_chunked_below` first. The newest segment always stays: the next
        leader starts from the state in its ledger.
        """
        count = 0 if self.has_chunks else _count_below(self.segments[:-1], log_start)
        return replace(self, segments=self.segments[count:]), self.segments[:count]

    def without_chunked_below(
        self, first: Sequence[PartitionSegment], log_start: int
    ) -> tuple["PartitionRecord", tuple[PartitionSegment, ...]]:
        """Remove the segments of the first chunk, `first`, that are below an offset; return them
        too. If none is left, the next chunk becomes the first.
        """
        assert self.has_chunks, "the record has a first chunk"
        left = first[self.skipped :]
        count = _count_below(left, log_start)
        if count == len(left):
            return replace(self, first_chunk=self.first_chunk + 1, skipped=0), tuple(left)
        return replace(self, skipped=self.skipped + count), tuple(left[:count])

    def spilled(self) -> tuple["PartitionRecord", tuple[PartitionSegment, ...]]:
        """Move the oldest segments into the next chunk if the record has too many; return that
        chunk too, or an empty one.
        """
        if len(self.segments) <= SEGMENTS_IN_RECORD_MAX:
            return self, ()
        chunk = self.segments[:SEGMENTS_PER_CHUNK]
        assert not any(segment.is_open for segment in chunk), "segments in chunks have ended"
        left = self.segments[SEGMENTS_PER_CHUNK:]
        return replace(self, segments=left, next_chunk=self.next_chunk + 1), chunk

    def _with_changed(
        self, ledger_id: LedgerId, change: Callable[[PartitionSegment], PartitionSegment]
    ) -> "PartitionRecord":
        # search from the end: it is the last segment or the one before
        for index in range(len(self.segments) - 1, -1, -1):
            if self.segments[index].ledger_id == ledger_id:
                before, after = self.segments[:index], self.segments[index + 1 :]
                return replace(self, segments=(*before, change(self.segments[index]), *after))
        raise AssertionError(f"ledger {ledger_id} is in the record")


def _check_chunks(record: PartitionRecord) -> None:
    if record.first_chunk > record.next_chunk:
        raise ValueError(f"chunk {record.first_chunk} is not below {record.next_chunk}")


PARTITION_CODEC: Final = codec_of(PartitionRecord, _check_chunks)
CHUNK_CODEC: Final = codec_of_one("segments", _SEGMENTS)


def _ended(
    segment: PartitionSegment, end_offset: int, size_bytes: int, max_timestamp_ms: int | None
) -> PartitionSegment:
    assert end_offset >= segment.base_offset, "a segment ends at or after its start"
    return replace(
        segment, end_offset=end_offset, bytes=size_bytes, max_timestamp_ms=max_timestamp_ms
    )


def _count_below(segments: Sequence[PartitionSegment], offset: int) -> int:
    """Return how many of the first segments are below an offset."""
    for count, segment in enumerate(segments):
        if not segment.is_below(offset):
            return count
    return len(segments)
