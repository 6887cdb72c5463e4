"""Keeps a coordinator's state durable: records in ledgers, each of which begins with a snapshot.

Leaves what the records mean to the coordinators, the list of ledgers to `ledger_chain`, and the
form of entries and loading them to `state_loading`.

Records say what is, not what changes: taking in one twice, or again after later ones that are taken
in again as well, gives the same state. So what was appended while a snapshot was made may be
appended again behind it.

Invariants: a future of `append` is resolved only when its record is committed, in order; an older
ledger is dropped only when the snapshot that replaces it is committed; after a failure nothing is
appended any more, and the coordinator's partition is taken over again.

Source: topics design, "State entries", "The mapping" (groups, transactions).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.ledger_chain import LedgerChain
from broker_layer.log.log_config import LogConfig
from broker_layer.log.log_services import LogServices
from broker_layer.log.state_loading import CHANGE, SNAPSHOT, SNAPSHOT_END, load_state
from ledger_client.errors import BackpressureError, LedgerError, NotEnoughInSyncReplicasError
from ledger_client.writer import LedgerWriter
from metadata.errors import MetadataError
from metadata.ids import NO_ENTRY, BookieId, EntryId
from metadata.partition_store import PartitionKey

WAITING_RECORDS_MAX: Final = 200_000
CARRIED_RECORDS: Final = 256
"""Committed records that are repeated behind a snapshot: whoever waited for them may not have run
when it was made."""
RETRY_S: Final = 0.1
DRAIN_S: Final = 10.0
NOT_GIVEN: Final = EntryId(NO_ENTRY)


log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Record:
    """One record on its way. `entry_id` is NOT_GIVEN until it was given to the writer."""

    data: bytes
    answer: asyncio.Future[None]
    entry_id: EntryId = NOT_GIVEN


class StateLog:
    """The durable state of one coordinator partition, under one leader epoch."""

    def __init__(
        self,
        chain: LedgerChain,
        config: LogConfig,
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> None:
        self._chain = chain
        self._config = config
        self._snapshot = snapshot
        self._on_failed = on_failed
        self._writer: LedgerWriter | None = None
        self._written_bytes = 0
        self._waiting: deque[_Record] = deque()
        self._pending: deque[_Record] = deque()
        self._recent: deque[bytes] = deque(maxlen=CARRIED_RECORDS)
        self._beginning: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._aborting: asyncio.Task[None] | None = None
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
    ) -> Self:
        """Claim the partition, and hand every record to `load`, in order.

        `snapshot` is to return, whenever it is called, records that make the state as it is then.
        Raises TopicError, LedgerError, MetadataError when it cannot be taken over now.
        """
        chain = await LedgerChain.claim(services, key, epoch)
        is_whole = await load_state(chain, load, config)
        log = cls(chain, config, snapshot, on_failed)
        if not is_whole:  # the next leader is to find what there is
            log._beginning = asyncio.get_running_loop().create_task(log._begin())
        return log

    @property
    def leader_epoch(self) -> int:
        """The epoch under which this broker leads the partition."""
        return self._chain.epoch

    @property
    def replicas(self) -> tuple[BookieId, ...]:
        """The bookies of the newest ledger, as far as one was begun here."""
        return () if self._writer is None else self._writer.members

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """Those of them that hold everything, live and do not lag."""
        if self._writer is not None and self._writer.quorum.is_in_sync:
            return self._writer.in_sync
        return self.replicas

    def append(self, record: bytes) -> asyncio.Future[None]:
        """Append a record; the future is resolved once it is committed. Raises TopicError
        NOT_COORDINATOR after a failure, COORDINATOR_NOT_AVAILABLE when too many are waiting.
        """
        if self.failure is not None:
            raise self.failure
        if len(self._waiting) >= WAITING_RECORDS_MAX:
            text = f"{WAITING_RECORDS_MAX} changes wait to be stored"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Record(bytes(record), answer))
        self._flush()
        return answer

    async def aclose(self) -> None:
        """Wait a bounded time for what was appended, and close the ledger."""
        with contextlib.suppress(TopicError, TimeoutError, LedgerError, MetadataError):
            async with asyncio.timeout(DRAIN_S):
                last = self._waiting[-1] if self._waiting else None
                last = last or (self._pending[-1] if self._pending else None)
                if last is not None and self.failure is None:
                    await asyncio.shield(last.answer)
                if self._writer is not None and self.failure is None:
                    await self._end(self._writer)
                    self._writer = None
        self._fail("the coordinator moved", is_told=False)
        left = [self._beginning, self._aborting]
        await asyncio.gather(*[each for each in left if each is not None], return_exceptions=True)
        await self._chain.aclose()

    # -- appending -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Give to the writer what waits, or begin a ledger first."""
        if self._beginning is not None or self.failure is not None or not self._waiting:
            return
        if self._writer is None or self._written_bytes >= self._config.segment_bytes:
            self._beginning = asyncio.get_running_loop().create_task(self._begin())
            return
        while self._waiting:
            record = self._waiting[0]
            try:
                stored = self._writer.append_nowait(CHANGE + record.data)
            except (BackpressureError, NotEnoughInSyncReplicasError):
                self._flush_later()
                return
            except LedgerError as error:
                self._fail(str(error))
                return
            self._waiting.popleft()
            record.entry_id = self._writer.last_pushed
            self._written_bytes += len(record.data) + 1
            self._pending.append(record)
            stored.add_done_callback(self._on_stored)

    def _flush_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        self._retry = None
        self._flush()

    def _on_stored(self, stored: asyncio.Future[int]) -> None:
        error = None if stored.cancelled() else stored.exception()
        if self._writer is None or self.failure is not None:
            return
        if error is not None or stored.cancelled():
            self._fail(str(error or "the append was given up"))
            return
        confirmed = self._writer.last_confirmed
        while self._pending and self._pending[0].entry_id <= confirmed:
            record = self._pending.popleft()
            self._recent.append(record.data)
            if not record.answer.done():
                record.answer.set_result(None)
        if not self._pending or self._waiting:
            self._flush()

    # -- ledgers ---------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Begin the next ledger with a snapshot; what is appended meanwhile waits."""
        try:
            repeated = [*self._recent, *(record.data for record in self._pending)]
            if self._writer is not None:
                await self._drain()
                await self._end(self._writer)
                self._writer = None
            writer = await self._chain.create_writer(self._config.quorum)
            try:
                last = self._chain.record.last_segment
                base = 0 if last is None or last.end_offset is None else last.end_offset
                segment = self._chain.new_segment(writer.id, base)
                await self._chain.change(lambda record: record.with_segment(segment))
            except MetadataError:
                await self._chain.abandon(writer)
                raise
            except (TopicError, asyncio.CancelledError):
                # It may be listed, where the next leader finds it: it must not be deleted.
                self._aborting = asyncio.get_running_loop().create_task(_abort(writer))
                raise
            self._writer = writer
            entries = [SNAPSHOT + part for part in self._snapshot()]
            entries += [SNAPSHOT_END, *(CHANGE + each for each in repeated)]
            self._written_bytes = 0
            await writer.append_many(entries)
            await self._chain.drop_below(base)
        except (LedgerError, MetadataError, TopicError) as error:
            self._fail(f"no ledger can be begun: {error}")
        except Exception as error:  # who waits for the ledger must hear of it
            log.exception("a ledger cannot be begun")
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self._beginning = None
        self._flush()

    async def _drain(self) -> None:
        while self._pending:
            await asyncio.shield(self._pending[-1].answer)

    async def _end(self, writer: LedgerWriter) -> None:
        """Close a ledger whose entries are all committed, and list its end."""
        await writer.aclose()
        last = self._chain.record.last_segment
        assert last is not None
        assert last.ledger_id == writer.id
        end, size = last.base_offset + writer.last_confirmed + 1, writer.info.length or 0
        await self._chain.change(
            lambda record: record.with_segment_ended(writer.id, end, size, None)
        )

    def _fail(self, text: str, *, is_told: bool = True) -> None:
        """Give up: everything that was not committed fails, and the owner takes over again."""
        if self.failure is not None:
            return
        self.failure = TopicError(ErrorCode.NOT_COORDINATOR, text)
        for records in (self._pending, self._waiting):
            while records:
                answer = records.popleft().answer
                if not answer.done():
                    answer.set_exception(self.failure)
                    answer.exception()  # whoever waited may have given up
        if self._retry is not None:
            self._retry.cancel()
        if self._beginning is not None and self._beginning is not asyncio.current_task():
            self._beginning.cancel()
        if self._writer is not None:
            self._aborting = asyncio.get_running_loop().create_task(_abort(self._writer))
            self._writer = None
        if is_told:
            self._on_failed()


async def _abort(writer: LedgerWriter) -> None:
    with contextlib.suppress(LedgerError, MetadataError):
        await writer.abort()
