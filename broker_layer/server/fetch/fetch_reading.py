"""Reads of the partitions of one Fetch, within its byte limits.

Leaves waiting for more to `fetch`, and the visibility of records to the partitions' logs.

Invariants: at least one complete batch is returned if one is visible; except for the first batch
and the last batch of each group of reads, an answer stays within the requested bytes; a partition
is not read if the client's leader epoch for it is wrong, or while the client may not read it.

Source: KIP-74 (bytes), KIP-98 (isolation), KIP-320 (leader epochs), KIP-516 (topic ids).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import read_header
from broker_layer.security.rights import Rights
from broker_layer.server.exchange import Buffer
from broker_layer.server.fetch.fetch_sessions import FetchPosition
from broker_layer.server.ports import ClusterNames, PartitionLog, PartitionLogs
from broker_layer.server.service_tools import UnreadableRecords, check_leader_epoch
from broker_layer.turns import Turns, slices
from metadata.security.acls import Operation, ResourceType

NO_OFFSET: Final = -1


@dataclass(slots=True)
class PartitionRead:
    """The result of one partition of a Fetch so far."""

    position: FetchPosition
    topic_name: str
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    batches: Sequence[Buffer] = ()
    aborted: Sequence[tuple[int, int]] = ()
    byte_count: int = 0
    read_up_to: int = NO_OFFSET
    """The end of the visible records at the last read."""

    log: PartitionLog | None = None
    rights: Rights | None = None
    """What the client may do; None without an authorizer."""

    @property
    def topic_id(self) -> bytes | None:
        """The topic's id, if the client names topics so."""
        topic = self.position.topic
        return topic if isinstance(topic, bytes) else None

    def refuse(self, error: ErrorCode) -> None:
        """Set an error, and drop the data."""
        self.error = error
        self.batches = ()
        self.aborted = ()
        self.byte_count = 0

    def note_ends(self, log: PartitionLog) -> None:
        """Copy the log's offsets."""
        self.log = log
        self.high_watermark = log.high_watermark
        self.last_stable_offset = log.last_stable_offset
        self.log_start_offset = log.log_start_offset


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Limits and isolation of one Fetch."""

    bytes_max: int
    reads_at_once: int
    read_committed: bool


class FetchReader:
    """Reader of partitions for Fetches."""

    def __init__(
        self, logs: PartitionLogs, topics: ClusterNames, unreadable: UnreadableRecords
    ) -> None:
        self._logs = logs
        self._topics = topics
        self._unreadable = unreadable

    def begin(self, position: FetchPosition, rights: Rights | None = None) -> PartitionRead:
        """Find a partition's log, and check that the client may read it; nothing is read yet."""
        topic = position.topic
        name = topic if isinstance(topic, str) else self._topics.topic_name_of(topic)
        if name is None:
            return PartitionRead(position, "", error=ErrorCode.UNKNOWN_TOPIC_ID)
        read = PartitionRead(position, name, rights=rights)
        self.refresh(read)
        return read

    def refresh(self, read: PartitionRead) -> None:
        """Update a partition's offsets, or the error why it cannot be read."""
        position, rights = read.position, read.rights
        if rights and not rights.check(Operation.READ, ResourceType.TOPIC, read.topic_name):
            read.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return
        try:
            log = self._logs.log_of(read.topic_name, position.partition)
            check_leader_epoch(log, position.leader_epoch)
        except TopicError as error:
            read.refuse(error.code)
            return
        read.error = ErrorCode.NONE
        read.note_ends(log)
        if not log.log_start_offset <= position.offset <= log.log_end_offset:
            read.refuse(ErrorCode.OFFSET_OUT_OF_RANGE)

    async def refresh_new(self, reads: list[PartitionRead], bounds: ReadBounds) -> None:
        """Update, after a wait, the partitions that `read` reads."""
        turns = Turns()
        for some in slices(reads):
            for each in some:
                if _has_new_records(each, bounds):
                    self.refresh(each)
            await turns.pass_on()

    async def read(self, reads: list[PartitionRead], bounds: ReadBounds) -> int:
        """Read, in order, partitions with more visible records than were read before.

        Returns the bytes of all `reads`.
        """
        total = sum(each.byte_count for each in reads)
        waiting = [each for each in reads if _has_new_records(each, bounds)]
        for each in waiting:
            total -= each.byte_count
            each.byte_count = 0
        began, turns = 0, Turns()
        while began < len(waiting):
            room = bounds.bytes_max - total
            if room <= 0:
                break
            group = _next_group(waiting[began : began + bounds.reads_at_once], bounds, room)
            began += len(group)
            first, *others = group
            if not others:
                await self._read_one(first, room, bounds, at_least_one=not total)
            else:
                await asyncio.gather(
                    self._read_one(first, room, bounds, at_least_one=not total),
                    *(self._read_one(each, room, bounds, at_least_one=False) for each in others),
                )
            total += sum(each.byte_count for each in group)
            await turns.pass_on()
        return total

    async def _read_one(
        self, read: PartitionRead, room: int, bounds: ReadBounds, *, at_least_one: bool
    ) -> None:
        log, position = read.log, read.position
        assert log is not None, "`refresh` has found the log"
        try:
            found = await log.read(
                position.offset,
                max(min(room, position.bytes_max), 1),
                read_committed=bounds.read_committed,
                at_least_one=at_least_one,
            )
        except TopicError as error:
            self._unreadable.note(read.topic_name, position.partition, error)
            read.refuse(error.code)
            return
        read.batches = found.batches
        read.byte_count = sum(map(len, read.batches))
        read.high_watermark = found.high_watermark
        read.last_stable_offset = found.last_stable_offset
        read.log_start_offset = found.log_start_offset
        read.aborted = found.aborted
        read.read_up_to = visible_end(read, read_committed=bounds.read_committed)


class LogsWatch:
    """Registration of one callback with the logs of some reads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watched: dict[int, tuple[PartitionLog, Callable[[], None]]] = {}

    def follow(self, reads: list[PartitionRead]) -> None:
        """Call back at the progress of the logs that the reads have now; an earlier log of a
        partition ended when this one replaced it.
        """
        for read in reads:
            log, cancel = self._watched.get(id(read), (None, None))
            if read.log is None or read.log is log:
                continue
            if cancel is not None:
                cancel()
            self._watched[id(read)] = read.log, read.log.on_progress(self._wake)

    def close(self) -> None:
        """End all registrations."""
        for _, cancel in self._watched.values():
            cancel()
        self._watched.clear()


def bytes_wanted(reads: list[PartitionRead], bounds: ReadBounds) -> int:
    """Return how many bytes the answer may take once `read` has read what is new."""
    total = 0
    for each in reads:
        is_new = _has_new_records(each, bounds)
        total += each.position.bytes_max if is_new else each.byte_count
    return min(total, bounds.bytes_max)


def was_cut(read: PartitionRead) -> bool:
    """Return whether more is visible after the returned batches of a partition.

    The next batch does not fit in the requested bytes.
    """
    if read.error or not read.batches:
        return False
    return read_header(read.batches[-1]).last_offset + 1 < read.read_up_to


def visible_end(read: PartitionRead, *, read_committed: bool) -> int:
    """Return the end of the records that this reader may see."""
    return read.last_stable_offset if read_committed else read.high_watermark


def _has_new_records(read: PartitionRead, bounds: ReadBounds) -> bool:
    if read.error or read.log is None:
        return False
    end = visible_end(read, read_committed=bounds.read_committed)
    return read.position.offset < end and end > read.read_up_to


def _next_group(waiting: list[PartitionRead], bounds: ReadBounds, room: int) -> list[PartitionRead]:
    """Return the first reads whose limits fit in the room together; at least one."""
    group: list[PartitionRead] = []
    for each in waiting:
        if group and each.position.bytes_max > room:
            break
        group.append(each)
        room -= each.position.bytes_max
    return group
