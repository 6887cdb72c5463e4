"""List of one partition's ledgers under one leader epoch.

Claims the list, recovers the ledger that an earlier leader left open, adds ledgers and deletes old
ones. Leaves the contents of ledgers to `topic_log` and `state_log`, and the list's format to
`metadata.topics.partition`.

Invariants: the list changes only by compare-and-set on the version that this leader read or wrote
last, so a replaced leader can change nothing; a change that was begun is completed, also if its
caller no longer waits; an epoch is claimed once; entries of a ledger count only after the ledger is
listed, and it is listed only after its predecessor is closed.

Source: topics design, "What a takeover does"; protocol rules 1.2 and 7.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Final, Self, TypeVar

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.log_services import LogServices
from broker_layer.log.topic_configs import LogConfig
from ledger_client import Quorum
from ledger_client.errors import (
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    RecoveryUndecidedError,
)
from ledger_client.info import LedgerInfo
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError, NodeNotFoundError, VersionConflictError
from metadata.ids import LedgerId, Version
from metadata.ledgers.ledger_metadata import QuorumMode
from metadata.topics.partition import PartitionRecord, PartitionSegment
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import NO_EPOCH, TOPIC_ID_BYTES, TopicId

CLAIM_ATTEMPTS_MAX: Final = 100
CHECK_S_MAX: Final = 2.0
"""Maximum time of one check, in seconds."""
PARTITION_METADATA: Final = "quire.partition"
"""Custom metadata of a partition's ledger: topic id in hexadecimal, a slash, the partition."""
EPOCH_METADATA: Final = "quire.leader-epoch"
Transition = Callable[[PartitionRecord], PartitionRecord]


HasState = Callable[[LedgerId], bool]
"""Returns whether the next leader is certain to find a state in a listed ledger."""


Result = TypeVar("Result")


log = logging.getLogger(__name__)


def partition_of(custom: Mapping[str, str | bytes]) -> PartitionKey | None:
    """Return the partition that a ledger was created for; None if it has none."""
    named = custom.get(PARTITION_METADATA)
    if not isinstance(named, str):
        return None
    topic, _, partition = named.partition("/")
    try:
        key = PartitionKey(TopicId(bytes.fromhex(topic)), int(partition))
    except ValueError:
        return None
    return key if len(key.topic_id) == TOPIC_ID_BYTES else None


def _has_state(_: LedgerId) -> bool:
    return True


def deposed(text: str) -> TopicError:
    """Return the error of a log that another broker leads, or that must be taken over again."""
    return TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)


class LedgerList:
    """The list of one partition's ledgers, as its leader of one epoch changes it."""

    def __init__(
        self,
        services: LogServices,
        key: PartitionKey,
        epoch: int,
        held: tuple[PartitionRecord, Version],
    ) -> None:
        self.services = services
        self.key = key
        self.epoch = epoch
        self.record, self._version = held
        self._changing = asyncio.Lock()
        self._works: dict[int, object] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        """Writers that end in the background."""
        self._older: tuple[tuple[int, int, int], list[PartitionSegment]] | None = None
        """Cache of older segments: (first chunk, next chunk, skipped segments) and the segments."""
        self.older_bytes = 0
        """Bytes of the ledgers that are listed outside of the record, as of the last read."""

    @classmethod
    async def claim(cls, services: LogServices, key: PartitionKey, epoch: int) -> Self:
        """Claim the list for a leader epoch, which must be above every earlier one.

        Raises TopicError FENCED_LEADER_EPOCH if this or a later epoch was claimed before,
        UNKNOWN_TOPIC_OR_PARTITION if the topic is deleted; MetadataError if the metadata service
        does not answer.
        """
        for _ in range(CLAIM_ATTEMPTS_MAX):
            record, version = await _found(services, key)
            if record.leader_epoch >= epoch:
                text = (
                    f"leader epoch {epoch} is not above the claimed epoch {record.leader_epoch}: "
                    "wait until the controller assigns a newer one"
                )
                raise TopicError(ErrorCode.FENCED_LEADER_EPOCH, text)
            try:
                held = await services.partitions.compare_and_set(
                    key, record.claimed(epoch), version
                )
            except VersionConflictError:
                continue  # the leader of an earlier epoch changed the list at the same time
            return cls(services, key, epoch, held)
        raise deposed(
            f"the list of ledgers changed during each of {CLAIM_ATTEMPTS_MAX} attempts to claim "
            "it; the takeover is retried"
        )

    async def is_held(self) -> bool:
        """Return whether no other leader had claimed the list before this call. Raises
        MetadataError.
        """
        try:
            record, _ = await self.services.partitions.get(self.key, agreed=True)
        except NodeNotFoundError:
            return False
        return record.leader_epoch == self.epoch

    async def change(self, transition: Transition) -> PartitionRecord:
        """Change the list; the change completes even if the caller is cancelled.

        Raises TopicError if another leader has claimed the list, MetadataError.
        """
        return await self.run_to_end(self._change(transition))

    async def _change(self, transition: Transition) -> PartitionRecord:
        async with self._changing:
            record = transition(self.record)
            if record == self.record:
                return record
            await self._store(record)
            return self.record

    async def run_to_end(self, work: Coroutine[None, None, Result]) -> Result:
        """Run `work` to its end, even if the caller is cancelled.

        If a change were cut off, the stored list could be newer than the known one, and the next
        change would treat it as another leader's.
        """

        def note_end(done: asyncio.Task[Result]) -> None:
            del self._works[id(done)]
            if not done.cancelled():
                done.exception()  # mark it as retrieved: the caller may no longer wait

        task = asyncio.get_running_loop().create_task(work)
        self._works[id(task)] = task
        task.add_done_callback(note_end)
        return await asyncio.shield(task)

    def is_unclean_requested(self, config: LogConfig) -> bool:
        """Return whether an operator requested an unclean leadership and none has begun since."""
        asked = config.unclean_since
        begun = self.record.epochs[-1].epoch if self.record.epochs else NO_EPOCH
        return asked is not None and begun < asked <= self.epoch

    async def end_last(self, config: LogConfig) -> LedgerInfo | None:
        """Recover the newest ledger if an earlier leader left it open; return it closed.

        Returns None if there is no ledger. The list still shows the ledger open: the caller lists
        its end. With unclean recovery, acknowledged entries are lost where no replica answers
        (11.6); all of them if an operator requested it. Raises LedgerError if the ledger cannot be
        recovered now.
        """
        last = self.record.last_segment
        if last is None:
            return None
        client, is_requested = self.services.client, self.is_unclean_requested(config)
        try:
            return await client.recover_ledger(last.ledger_id)
        except RecoveryUndecidedError:
            if not (is_requested or config.unclean_recovery):
                raise
        info = await client.recover_ledger_unclean(last.ledger_id, gives_up_all=is_requested)
        if info.given_up:
            log.warning(
                "ledger %s of %s-%s is abandoned from entry %s on: later entries are lost",
                last.ledger_id,
                self.key.topic_id.hex(),
                self.key.partition,
                info.given_up[0].first_entry_id,
            )
        return info

    async def create_writer(self, quorum: Quorum) -> LedgerWriter:
        """Create the next ledger, which is not listed yet.

        In in-sync mode it may have fewer replicas than configured, but at least `min_in_sync`. If
        the caller is cancelled, the ledger is deleted once it is created: it stays, empty and
        unlisted, only if this process dies. Raises LedgerError.
        """
        creating = asyncio.get_running_loop().create_task(self._create_writer(quorum))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            creating.add_done_callback(self._abandon_created)
            raise

    def _abandon_created(self, creating: asyncio.Future[LedgerWriter]) -> None:
        if not creating.cancelled() and creating.exception() is None:
            self.end_later(creating.result(), is_listed=False)

    async def _create_writer(self, quorum: Quorum) -> LedgerWriter:
        named: dict[str, str | bytes] = {
            PARTITION_METADATA: f"{self.key.topic_id.hex()}/{self.key.partition}",
            EPOCH_METADATA: str(self.epoch),
        }
        while True:
            try:
                return await self.services.client.create_ledger(quorum, metadata=named)
            except NotEnoughBookiesError as error:
                fewer = min(quorum.ensemble - 1, error.seen)
                if quorum.mode is not QuorumMode.IN_SYNC or fewer < quorum.min_in_sync:
                    raise
                quorum = Quorum.in_sync(
                    fewer,
                    quorum.min_in_sync,
                    replica_lag_time_max=quorum.replica_lag_time_max,
                )

    def new_segment(self, ledger_id: LedgerId, base_offset: int) -> PartitionSegment:
        """Return the list's item for a ledger that this leader created."""
        created_ms = self.services.wall_clock_ms()
        return PartitionSegment(ledger_id, base_offset, self.epoch, created_ms, None, None, None)

    async def segments(self) -> list[PartitionSegment]:
        """Return all listed ledgers, oldest first, also those listed outside of the record."""
        while self.record.has_chunks:
            record = self.record
            chunks = (record.first_chunk, record.next_chunk, record.skipped)
            if self._older is not None and self._older[0] == chunks:
                return [*self._older[1], *record.segments]
            try:
                segments = await self.services.partitions.segments(self.key, record)
            except NodeNotFoundError as error:
                if record is self.record:
                    raise deposed("another broker has deleted ledgers of this partition") from error
            else:
                older = list(segments[: len(segments) - len(record.segments)])
                self._older = chunks, older
                self.older_bytes = sum(segment.bytes or 0 for segment in older)
                return list(segments)
        self.older_bytes = 0
        return list(self.record.segments)

    @property
    def known_segments(self) -> list[PartitionSegment]:
        """The segments, oldest first, without a read: older ones as of the last read."""
        older = self._older[1] if self.record.has_chunks and self._older is not None else []
        return [*older, *self.record.segments]

    async def drop_below(self, log_start_offset: int, has_state: HasState = _has_state) -> int:
        """Delete the ledgers that end at or below an offset, and remove them from the list.

        The offset must already be the stored start of the log. The newest ledger always stays, and
        while it has no state yet, all do: the next leader needs the state of the one before.
        Ledgers are deleted before the list changes: if the work is cut off, the list still names
        them, and the next attempt deletes them. Returns how many ledgers were deleted.
        """
        gone: dict[LedgerId, None] = {}
        while due := await self.run_to_end(self._drop(log_start_offset, gone, has_state)):
            for segment in due:  # outside of the lock: other changes of the list need not wait
                with contextlib.suppress(LedgerNotFoundError):
                    await self.services.client.delete_ledger(segment.ledger_id)
                gone[segment.ledger_id] = None
        return len(gone)

    async def _drop(
        self, log_start_offset: int, gone: Mapping[LedgerId, None], has_state: HasState
    ) -> list[PartitionSegment]:
        """Remove the ledgers below an offset from the list; or return those not deleted yet."""
        partitions = self.services.partitions
        async with self._changing:
            last = self.record.last_segment
            if last is None or not has_state(last.ledger_id):
                return []
            left, dropped = await partitions.without_segments_below(
                self.key, self.record, log_start_offset
            )
            due = [segment for segment in dropped if segment.ledger_id not in gone]
            if dropped and not due:
                await self._store(left)
                await partitions.drop_chunks(self.key, self.record)
            return due

    async def abandon(self, writer: LedgerWriter) -> None:
        """Try to delete a ledger that is not listed; no pending change may list it."""
        try:
            await writer.abort()
            await self.services.client.delete_ledger(writer.id)
        except (LedgerError, MetadataError) as error:
            log.info("ledger %s, which was never used, could not be deleted: %s", writer.id, error)

    def end_later(self, writer: LedgerWriter, *, is_listed: bool) -> None:
        """Abort a writer in the background; delete its ledger if it is not listed."""
        work = _abort(writer) if is_listed else self.abandon(writer)
        task = asyncio.get_running_loop().create_task(work)
        self._ending[task] = None
        task.add_done_callback(self._ending.pop)

    async def aclose(self) -> None:
        """Wait until writers that end in the background have ended."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _store(self, record: PartitionRecord) -> None:
        try:
            # The stored record may list fewer ledgers: older ones are moved to a separate node.
            self.record, self._version = await self.services.partitions.compare_and_set(
                self.key, record, self._version
            )
        except VersionConflictError as error:
            raise deposed("another broker has claimed this partition") from error
        except NodeNotFoundError as error:
            raise deposed("this partition was deleted") from error


async def _abort(writer: LedgerWriter) -> None:
    with contextlib.suppress(LedgerError, MetadataError):
        await writer.abort()


async def _found(services: LogServices, key: PartitionKey) -> tuple[PartitionRecord, Version]:
    """Read a partition's list of ledgers; create an empty one if there is none.

    Whether the topic still has the partition is checked after the list is created. If the topic is
    deleted later, its deletion also removes the list. If it was deleted before, the check notices
    it, and the list is removed here.
    """
    partitions = services.partitions
    record, version = await partitions.get_or_create(key)
    partition_exists = services.partition_exists
    if partition_exists is None or record.leader_epoch != NO_EPOCH or await partition_exists(key):
        return record, version
    await partitions.delete(key)
    text = f"the topic of partition {key.partition} was deleted during the takeover"
    raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


class LeadCheck:
    """Certainty that no other broker has claimed a partition, for answers that must not be old.

    A leader that was replaced while its session lives does not know it until the news arrives. What
    it writes fails, because its ledger is fenced; what it answers from memory does not.

    Invariant: a check counts only for callers that came before it began. So callers that come while
    one runs share the next one, and a partition has at most one question at a time under way.
    """

    def __init__(self, ledger_list: LedgerList) -> None:
        self._ledger_list = ledger_list
        self._running = asyncio.Lock()
        self._begun = 0
        self._leads: bool | None = None
        """Outcome of the last check; None if it had none."""

    async def leads(self) -> bool:
        """Return whether no other broker had claimed the partition before this call.

        Raises TopicError COORDINATOR_LOAD_IN_PROGRESS, on which clients retry, if the metadata
        service does not answer.
        """
        needed = self._begun + 1
        async with self._running:
            if self._begun < needed:
                self._begun += 1
                self._leads = None
                self._leads = await self._ask()
            if self._leads is None:
                text = "whether this broker is still the coordinator is not known now: retry"
                raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
            return self._leads

    async def _ask(self) -> bool | None:
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                return await self._ledger_list.is_held()
        except (MetadataError, TimeoutError):
            return None
