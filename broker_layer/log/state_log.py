"""Durable state of a coordinator: records in ledgers, each of which begins with a snapshot.

Leaves the meaning of records to the coordinators, the choice of the ledger to `rolling/`, and the
format of entries and their loading to `state_loading`.

While the log rolls to the next ledger, records wait. The snapshot contains them, as the state in
memory does, so it stores them too: they are not appended after it. The mark that ends the snapshot
is the last entry of it, because the mark alone makes the ledger count.

Invariants: the caller changes its state and appends the record of the change without an `await`
between them; futures of `append` are resolved only when their records are committed, in order; an
older ledger is deleted only when the snapshot that replaces it is committed; after a failure
nothing is appended, and the coordinator's partition is taken over again.

Source: topics design, "State entries", "The mapping" (groups, transactions).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Self

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.lead_check import LeadCheck
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.log_services import DRAIN_S, LogServices
from broker_layer.log.rolling.ledger_roller import LedgerRoller, OpenLedger
from broker_layer.log.settings.log_config import LogConfig
from broker_layer.log.state_loading import CHANGE, SNAPSHOT, SNAPSHOT_END, load_state
from ledger_client.errors import BackpressureError, LedgerError, NotEnoughInSyncReplicasError
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError
from metadata.ids import EntryId
from metadata.topics.partition_store import PartitionKey

WAITING_RECORDS_MAX: Final = 200_000
"""Maximum number of records that wait to be appended."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum number of bytes of these, one record more: callers may have left while they wait."""
RETRY_S: Final = 0.1

log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """A record that a writer has and that is not committed."""

    answer: asyncio.Future[None]
    writer: LedgerWriter
    entry_id: EntryId


class StateLog:
    """The durable state of one coordinator partition, under one leader epoch."""

    def __init__(
        self,
        ledger_list: LedgerList,
        config: LogConfig,
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
        has_lapsed: Callable[[], bool],
    ) -> None:
        self._ledger_list = ledger_list
        self._snapshot = snapshot
        self._on_failed = on_failed
        self._has_lapsed = has_lapsed
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        """Records that no writer has."""
        self._waiting_bytes = 0
        self._pending: deque[_Pending] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._roller = LedgerRoller(self, ledger_list, config, fill=self._fill)
        self._check = LeadCheck(ledger_list)
        self.failure: TopicError | None = None

    @classmethod
    async def take_over(
        cls,
        services: LogServices,
        key: PartitionKey,
        epoch: int,
        config: LogConfig,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
        has_lapsed: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Claim the partition, and pass every record to `load`, in order.

        `snapshot` must return records that make up the state at the time of the call, with the
        changes of every appended record. `has_lapsed` returns whether another broker may lead
        the partition now. Raises TopicError, LedgerError or MetadataError if the partition cannot
        be taken over now.
        """
        ledger_list = await LedgerList.claim(services, key, epoch)
        is_whole = await load_state(ledger_list, load, config)
        log = cls(ledger_list, config, snapshot, on_failed, has_lapsed)
        if not is_whole:  # store a snapshot, so that the next leader finds the present state
            log._roller.want_ledger()
        return log

    @property
    def leader_epoch(self) -> int:
        """The epoch under which this broker leads the partition."""
        return self._ledger_list.epoch

    @property
    def lead_refusal(self) -> TopicError | None:
        """Why this broker may not answer for the partition now; None if it may."""
        if self.failure is None and self._has_lapsed():
            text = "the session of this broker has lapsed: find the coordinator again"
            return TopicError(ErrorCode.NOT_COORDINATOR, text)
        return self.failure

    async def confirm_lead(self) -> None:
        """Return once it is certain that no other broker had taken the partition over before this
        call. Raises TopicError (see `DurableLog`).
        """
        if not await self._check.leads():
            self.fail("another broker has claimed this partition")
        if self.failure is not None:
            raise self.failure

    @property
    def log_end_offset(self) -> int:
        """The number of entries that were written, those of snapshots included."""
        newest, last = self._roller.newest, self._ledger_list.record.last_segment
        if newest is not None:
            return newest.segment.base_offset + newest.writer.admission.next_entry_id
        return 0 if last is None or last.end_offset is None else last.end_offset

    def append(self, record: bytes) -> asyncio.Future[None]:
        """Append a record; return a future that is resolved once it is committed.

        Raises TopicError: NOT_COORDINATOR after a failure, COORDINATOR_NOT_AVAILABLE if too many
        records wait, or the ledger has grown to its limit.
        """
        if self.failure is not None:
            raise self.failure
        count, size = len(self._waiting), self._waiting_bytes
        if count >= WAITING_RECORDS_MAX or size >= WAITING_BYTES_MAX:
            text = f"{count} records with {size} B wait to be stored; try again later"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        self._roller.require_room(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((bytes(record), answer))
        self._waiting_bytes += len(record)
        self._flush()
        return answer

    async def aclose(self) -> None:
        """Wait up to DRAIN_S for appended records, and close the ledger."""
        with contextlib.suppress(TopicError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                if answers := self._answers():
                    await asyncio.shield(answers[-1])
                await self._roller.end(DRAIN_S)
        self.fail("the coordinator moved", notifies_owner=False)
        await self._roller.aclose()

    # -- appending -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Give waiting records to the writer, or begin a ledger first."""
        if self.failure is not None or not self._waiting:
            return
        self._roller.roll_if_due()
        ledger = self._roller.ledger
        if ledger is None:
            self._roller.want_ledger()
            return
        while self._waiting:
            data, answer = self._waiting[0]
            try:
                entry_id = ledger.writer.append_followed(CHANGE + data)
                self._pending.append(_Pending(answer, ledger.writer, entry_id))
            except (BackpressureError, NotEnoughInSyncReplicasError):
                self._flush_later()
                return
            except LedgerError as error:
                self.fail(str(error))
                return
            except Exception as error:  # the record may be written, and must not be written again
                log.exception("a coordinator's record cannot be appended")
                self.fail(f"an append failed inside the broker ({type(error).__name__}: {error})")
                return
            self._take_waiting()
            ledger.written_bytes += len(data) + 1
            ledger.record_bytes += len(data) + 1

    def _take_waiting(self) -> asyncio.Future[None]:
        """Remove the first record that waits; return its future."""
        data, answer = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        return answer

    def _flush_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        self._retry = None
        self._flush()

    def _note_progress(self, error: LedgerError | None) -> None:
        """Resolve the futures of committed records, or fail if the writer has failed."""
        while self._pending and self._pending[0].entry_id <= self._pending[0].writer.last_confirmed:
            _resolve(self._pending.popleft().answer)
        if error is not None and self._pending:
            self.fail(str(error))
            return
        self._flush()

    # -- ledgers ---------------------------------------------------------------------------------

    async def _fill(self, writer: LedgerWriter) -> None:
        """Write a snapshot into the next ledger, which is listed; then delete the older ones.

        The snapshot contains the changes of the records that wait, so it also stores these.
        """
        count = len(self._waiting)
        entries = [SNAPSHOT + part for part in self._snapshot()]
        await writer.append_many([*entries, SNAPSHOT_END])
        for _ in range(count):
            _resolve(self._take_waiting())
        last = self._ledger_list.record.last_segment
        assert last is not None, "the next ledger is listed"
        try:
            await self._ledger_list.drop_below(last.base_offset)
        except (LedgerError, MetadataError) as error:  # the next ledger's beginning deletes them
            log.info("older ledgers of a coordinator will be deleted later: %s", error)

    def begin_ledger(self, ledger: OpenLedger) -> None:
        """Follow the ledger that records go to from now on."""
        ledger.writer.follow(self._note_progress)

    def resume(self) -> None:
        """Append the records that waited for a ledger."""
        self._flush()

    def refuse_deferred(self, error: TopicError) -> None:
        """End the log, which cannot begin a ledger."""
        self.fail(error.text)

    def fail(self, text: str, *, notifies_owner: bool = True) -> None:
        """End the log: uncommitted records fail, and the owner takes the partition over again."""
        if self.failure is not None:
            return
        self.failure = TopicError(ErrorCode.NOT_COORDINATOR, text)
        for answer in self._answers():
            if not answer.done():
                answer.set_exception(self.failure)
                answer.exception()  # mark it as retrieved: the caller may no longer wait
        self._pending.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._retry is not None:
            self._retry.cancel()
        self._roller.abandon()
        if notifies_owner:
            self._on_failed()

    def _answers(self) -> list[asyncio.Future[None]]:
        """Return the futures of the records that are not committed, in order."""
        return [each.answer for each in self._pending] + [answer for _, answer in self._waiting]


def _resolve(answer: asyncio.Future[None]) -> None:
    if not answer.done():  # else the caller no longer waits
        answer.set_result(None)
