"""Reader of one ledger, open or closed, that never affects its writer.

Leaves requests to `range_reader.py`, waiting for new entries to `tailing.py`, and the ledger's
state to `followed_ledger.py`.

Invariants: only `read_unconfirmed` returns entries beyond the LAC; the LAC never goes back.

Source: protocol section 8; api design, "Client".
"""

import asyncio
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from random import Random
from typing import Final, Self

from ledger_client.batches import Entry, EntryBatch
from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.ledger_cipher import LedgerCipher, opened
from ledger_client.errors import (
    EntryNotFoundError,
    LedgerClosedError,
    LedgerError,
    QuorumTimeoutError,
    agreed_end_unknown,
)
from ledger_client.handle import ForkGuard, Handle, LoopGuard, in_own_loop, ledger_text
from ledger_client.info import LedgerInfo
from ledger_client.observability import EventCallback
from ledger_client.reading.followed_ledger import FollowedLedger, OwnWriter
from ledger_client.reading.range_reader import RangeEntries, RangeReader
from ledger_client.reading.tailing import TailPoller, read_lac
from ledger_client.tasks import BackgroundTasks
from metadata.cancelling import cancel_and_wait
from metadata.ids import ENTRY_ID_MAX, EntryId, LedgerId, Version
from metadata.ledgers.copies import stripe_end
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from metadata.ledgers.ledger_store import LedgerStore

VISIBLE_WAIT_S: Final = 0.5
"""Time for which a read waits for an entry beyond the LAC: an idle writer sends its LAC sooner."""
REQUESTS_MAX: Final = 16


class ReadPlan:
    """Decides where each request ends, from the sizes seen so far. Pure."""

    def __init__(
        self, quorum: QuorumSpec, config: ClientConfig, entry_bytes: float | None = None
    ) -> None:
        """Create a plan; `entry_bytes` is the average size of entries read before, or 0."""
        self._quorum = quorum
        self._ahead_count = config.read_ahead_count
        self._target_bytes = config.read_bytes_max // 2
        self._entry_bytes = entry_bytes
        self._request_bytes = 0.0 if entry_bytes is None else float(self._target_bytes)

    def learn(self, result: RangeEntries) -> None:
        """Record the sizes in an answer."""
        count = sum(len(batch) for batch in result.batches)
        size = sum(batch.payload_bytes for batch in result.batches)
        if count:
            mean = max(1.0, size / count)
            known = self._entry_bytes
            self._entry_bytes = mean if known is None else (3 * known + mean) / 4
            self._request_bytes = size

    @property
    def request_count(self) -> int:
        """Number of requests to have under way: one until a size is known, more if answers are
        small.
        """
        if self._entry_bytes is None:
            return 1
        wanted = self._ahead_count * self._target_bytes / max(1.0, self._request_bytes)
        return max(self._ahead_count, min(REQUESTS_MAX, int(wanted)))

    def end(self, first: EntryId, last: EntryId) -> EntryId:
        """Return the last entry of a request that starts at `first`; at most `last`."""
        stripe_last = stripe_end(self._quorum, first)
        if self._entry_bytes is None:
            return min(stripe_last, last)
        furthest = EntryId(first + max(0, int(self._target_bytes / self._entry_bytes) - 1))
        if furthest < stripe_last:
            return min(furthest, last)
        stripe = self._quorum.stripe_entries
        whole = EntryId(stripe_last + (furthest - stripe_last) // stripe * stripe)
        return min(whole, last)


async def read_ahead(
    ranges: RangeReader, plan: ReadPlan, first: EntryId, last: EntryId, timeout_s: float
) -> AsyncGenerator[EntryBatch, None]:
    """Yield the batches of first..last in order; `timeout_s` limits each request.

    Requests are sized by the sizes of earlier entries, and end where stripes end if that is near.
    Batches never cross a stripe, so complete batches come back, each checked by one CRC. At most
    `REQUESTS_MAX` answers are held. Nothing is left running when the iterator is closed (rule 8.3).
    """
    loop = asyncio.get_running_loop()
    under_way: deque[tuple[EntryId, asyncio.Task[RangeEntries]]] = deque()
    next_entry_id = first
    try:
        while True:
            while next_entry_id <= last and len(under_way) < plan.request_count:
                end = ranges.range_end(next_entry_id, plan.end(next_entry_id, last))
                read = ranges.read(next_entry_id, end, timeout_s)
                under_way.append((end, loop.create_task(read)))
                next_entry_id = EntryId(end + 1)
            if not under_way:
                return
            end, task = under_way.popleft()
            try:
                result = await task
            finally:
                task.cancel()
            plan.learn(result)
            # The answer reached the size limit, or the replica had no more.
            is_short = result.next_entry_id <= end
            if is_short and under_way:
                rest = ranges.read(result.next_entry_id, end, timeout_s)
                under_way.appendleft((end, loop.create_task(rest)))
            elif is_short:
                next_entry_id = result.next_entry_id
            for batch in result.batches:
                yield batch
    finally:
        await cancel_and_wait(*[task for _end, task in under_way])


class ReaderHold:
    """Hold of one reader, from its start until it is closed or dropped.

    Each hold is released once, also that of a reader that is dropped without a close.
    """

    def __init__(
        self, ledger: FollowedLedger, keys: LedgerKeys, pool: BookiePool, guard: ForkGuard
    ) -> None:
        """Follow the ledger and attach its key. Raises UnauthorizedError."""
        pool.attach(ledger.ledger_id, keys.master_key)
        self._ledger = ledger
        self._pool = pool
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks()
        ledger.start()

    async def release(self) -> None:
        """Stop following the ledger, and detach its key."""
        await self._ledger.aclose()
        self._pool.detach(self._ledger.ledger_id)

    def drop(self) -> None:
        """Release in the background, with a ResourceWarning: the reader is gone. Any thread may
        call this.
        """
        if self._guard.is_forked or self._loop.is_closed():
            return  # nothing is held any more, or by the parent
        with suppress(RuntimeError):  # the loop was closed just now
            self._loop.call_soon_threadsafe(self._release_later)
        text = f"a reader of ledger {self._ledger.ledger_id} was dropped: call aclose() first"
        warnings.warn(text, ResourceWarning, stacklevel=3)

    def _release_later(self) -> None:
        self._tasks.start(self.release())


class LedgerReader(Handle):
    """Handle for reading one ledger; created by `LedgerClient.open_ledger`."""

    def __init__(  # noqa: PLR0913 - parts of the client, which builds it at one place
        self,
        *,
        metadata: LedgerMetadata,
        version: Version,
        keys: LedgerKeys,
        pool: BookiePool,
        ledgers: LedgerStore,
        config: ClientConfig,
        rng: Random,
        report: EventCallback | None = None,
        cipher: LedgerCipher | None = None,
        find_writer: Callable[[], OwnWriter | None] = lambda: None,
    ) -> None:
        self._cipher = cipher
        self._ledger = FollowedLedger(metadata, version, ledgers, rng, find_writer)
        self._keys = keys
        self._pool = pool
        self._config = config
        self._rng = rng
        self._ranges = RangeReader(self._ledger, keys, pool, config, rng, report=report)
        self._pollers: dict[int, TailPoller] = {}
        self._own_loop: Final = LoopGuard("reader", metadata.ledger_id, None)
        self._hold: ReaderHold | None = None
        self._is_closed = False

    async def start(self, timeout_s: float) -> None:
        """Follow the ledger, and learn its LAC if bookies tell it in time."""
        self._own_loop.require()
        self._hold = ReaderHold(self._ledger, self._keys, self._pool, self._own_loop)
        if not self._ledger.is_closed:
            # Entries that the metadata proves confirmed can be read without an answer. The next
            # call that needs the LAC asks for it again.
            with suppress(QuorumTimeoutError):
                await read_lac(self._ledger, self._pool, self._read_timeout_s(timeout_s))

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._ledger.ledger_id

    @property
    def info(self) -> LedgerInfo:
        """The ledger's metadata as last read."""
        return LedgerInfo.of(self._ledger.metadata)

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is closed: no entry will follow `last_confirmed`."""
        return self._ledger.is_closed

    @property
    def last_confirmed(self) -> EntryId:
        """The last entry known to be readable; -1 if none is. Never decreases. While no bookie has
        told a LAC of an open ledger, it has only what the metadata proves: `learn_last_confirmed`
        asks. Of a ledger that this client writes, it is the writer's.
        """
        return self._ledger.last_confirmed

    async def learn_last_confirmed(self, *, timeout: float | None = None) -> EntryId:
        """Return `last_confirmed`; ask the bookies first if none of them has told a LAC yet. Raises
        the errors of `refresh_last_confirmed`.
        """
        self._check_open()
        lac = self.last_confirmed  # told by the writer, if it is of this client
        if self.is_closed or self._ledger.is_lac_told:
            return lac
        return await self.refresh_last_confirmed(timeout=timeout)

    async def refresh_last_confirmed(self, *, timeout: float | None = None) -> EntryId:
        """Read the LAC from the metadata and the bookies; return it.

        Raises LedgerNotFoundError, UnauthorizedError; QuorumTimeoutError if no bookie answered.
        """
        self._check_open()
        timeout_s = self._config.call_timeout_s if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout_s):
                # Half of the time is kept for the bookies.
                await self._ledger.refresh_if_possible(timeout_s / 2)
                if not self._ledger.is_closed:
                    await read_lac(self._ledger, self._pool, self._read_timeout_s(timeout_s))
        except QuorumTimeoutError:
            raise
        except TimeoutError:
            raise QuorumTimeoutError(
                f"no bookie returned the LAC within {timeout_s} s: try again",
                ledger_id=self.id,
                outcome="not_written",
            ) from None
        return self._ledger.last_confirmed

    @in_own_loop
    async def read(
        self,
        first: int = 0,
        last: int | None = None,
        *,
        agreed: bool = False,
        timeout: float | None = None,
    ) -> AsyncGenerator[EntryBatch, None]:
        """Yield the batches of entries first..last, both included; by default up to the LAC.

        The LAC of another client's writer is learned from bookies, which hear of it with the next
        append, or about `lac_delay_s` later. `agreed` reads up to an end that includes every entry
        acknowledged before the call, by any client (`agreed_last`); it excludes `last`.

        `timeout` limits each request, and the wait for the LAC. Raises EntryNotFoundError for
        entries beyond the LAC, or that
        no replica has; EntryLostError when it reaches an entry whose loss was accepted: continue
        after its `lost_last`; DigestMismatchError, DecryptionError, QuorumTimeoutError,
        LedgerNotFoundError; ValueError for both `last` and `agreed`; with `agreed` also
        MetadataUnavailableError.
        """
        self._check_open()
        if agreed and last is not None:
            raise ValueError("read() got `last` and `agreed`, which are two ends: give one of them")
        deadline = self._deadline(timeout)
        if agreed:
            last = await self.agreed_last(timeout=timeout)
        last_wanted = await self.learn_last_confirmed(timeout=timeout) if last is None else last
        await self._make_visible(first, last_wanted, deadline)
        stream = self._batches(EntryId(first), EntryId(last_wanted), timeout)
        async with aclosing(stream) as batches:
            async for batch in batches:
                yield batch

    async def agreed_last(self, *, timeout: float | None = None) -> EntryId:
        """Return `last_confirmed` once it includes every entry that any client's writer had
        acknowledged before the call; entries that were stored and not acknowledged may be waited
        for too. Takes about `lac_delay_s` after an append.

        Raises QuorumTimeoutError if too few bookies answered to know such an end, or if entries are
        stored beyond the LAC and no writer confirmed them in time: `recover_ledger` decides them
        when the writer is gone. Raises LedgerNotFoundError, UnauthorizedError,
        MetadataUnavailableError. Source: protocol rule 8.7.
        """
        self._check_open()
        timeout_s = self._config.call_timeout_s if timeout is None else timeout
        end: EntryId | None = None
        try:
            async with asyncio.timeout(timeout_s):
                if not self.is_closed:
                    await self._ledger.refresh(agreed=True)
                if self.is_closed:
                    return self.last_confirmed
                end = await read_lac(self._ledger, self._pool, self._read_timeout_s(timeout_s))
                if end is not None:
                    await self._wait_for(end, timeout_s)
        except QuorumTimeoutError:
            raise
        except TimeoutError:
            pass
        if end is None or (end > self.last_confirmed and not self.is_closed):
            raise agreed_end_unknown(self.id, end, self.last_confirmed, timeout_s)
        return self.last_confirmed

    @in_own_loop
    async def read_unconfirmed(
        self,
        first: int,
        last: int,
        *,
        timeout: float | None = None,
        entry_bytes: float | None = None,
    ) -> AsyncGenerator[EntryBatch, None]:
        """Yield batches as `read` does, also beyond the LAC: such entries may prove not to exist.

        `entry_bytes` is the approximate size of an entry, if known: then several requests are sent
        at once from the start.
        """
        self._check_open()
        _check_range(first, last, self.id)
        stream = self._batches(EntryId(first), EntryId(last), timeout, entry_bytes)
        async with aclosing(stream) as batches:
            async for batch in batches:
                yield batch

    async def read_entry(self, entry_id: int, *, timeout: float | None = None) -> Entry:
        """Return one entry within `timeout`. Raises the errors of `read`."""
        self._check_open()
        deadline = self._deadline(timeout)
        await self._make_visible(entry_id, entry_id, deadline)
        left_s = max(0.0, deadline - asyncio.get_running_loop().time())
        wanted = EntryId(entry_id)
        async with aclosing(self._batches(wanted, wanted, left_s)) as batches:
            async for batch in batches:
                return batch[0]
        raise AssertionError("a read yields the requested entries, or raises")

    @in_own_loop
    async def tail(
        self, start: int = 0, *, timeout: float | None = None
    ) -> AsyncGenerator[EntryBatch, None]:
        """Yield batches from `start` on, as entries are confirmed; end when the ledger is closed
        and all entries were yielded. `timeout` limits each request, never the wait for new entries.
        Raises the errors of `read`; EntryNotFoundError also if the closed ledger ends before the
        entry that precedes `start`.
        """
        self._check_open()
        _check_range(start, start, self.id)
        position = EntryId(start)
        poller = TailPoller(self._ledger, self._keys, self._pool, self._config, self._rng)
        self._pollers[id(poller)] = poller
        try:
            while True:
                self._check_open()
                if self._ledger.is_deleted:
                    raise self._ledger.deleted_error()
                lac = self.last_confirmed
                if position <= lac:
                    async with aclosing(self._batches(position, lac, timeout)) as batches:
                        async for batch in batches:
                            position = EntryId(batch.last_entry_id + 1)
                            yield batch
                elif self._ledger.is_closed:
                    if position > lac + 1:  # a position that was stored; the ledger lost entries
                        raise EntryNotFoundError(
                            f"the closed ledger ends at entry {lac}, before the position {start}",
                            ledger_id=self.id,
                            entry_id=EntryId(start - 1),
                        )
                    return
                else:
                    for batch in await poller.wait():
                        shown = batch.clipped(position, batch.last_entry_id)
                        if shown is not None and shown.first_entry_id == position:
                            position = EntryId(shown.last_entry_id + 1)
                            yield self._opened(shown)
        finally:
            self._pollers.pop(id(poller), None)
            await poller.aclose()

    async def wait_confirmed(self, beyond: int, *, timeout: float) -> EntryId:
        """Return the LAC once it is above `beyond`, the ledger is closed, or the time is up.

        Raises LedgerNotFoundError once the ledger is deleted, UnauthorizedError.
        """
        self._own_loop.require()
        ledger, keys, pool, config = self._ledger, self._keys, self._pool, self._config
        poller = TailPoller(ledger, keys, pool, config, self._rng, takes_entries=False)
        self._pollers[id(poller)] = poller
        try:
            async with asyncio.timeout(timeout):
                while self.last_confirmed <= beyond and not self.is_closed:
                    self._check_open()
                    if self._ledger.is_deleted:
                        raise self._ledger.deleted_error()
                    await poller.wait()
        except QuorumTimeoutError:
            raise
        except TimeoutError:
            return self.last_confirmed
        finally:
            self._pollers.pop(id(poller), None)
            await poller.aclose()
        return self.last_confirmed

    async def aclose(self) -> None:
        """Stop following the ledger. Iterators still in use end with LedgerClosedError."""
        if self._is_closed:
            return
        self._own_loop.require()
        self._is_closed = True
        for poller in list(self._pollers.values()):
            poller.wake()
        hold, self._hold = self._hold, None
        if hold is not None:
            await hold.release()

    def __del__(self) -> None:
        """Release what a reader holds that was not closed, with a ResourceWarning."""
        hold: ReaderHold | None = getattr(self, "_hold", None)  # the constructor may have failed
        if hold is not None:
            hold.drop()

    def _description(self) -> str:  # type: ignore[explicit-override]
        return ledger_text(self.id, self.last_confirmed, is_open=not self._is_closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _batches(
        self,
        first: EntryId,
        last: EntryId,
        timeout: float | None,
        entry_bytes: float | None = None,
    ) -> AsyncGenerator[EntryBatch, None]:
        if self._ledger.is_deleted:
            raise self._ledger.deleted_error()
        timeout_s = self._config.call_timeout_s if timeout is None else timeout
        plan = ReadPlan(self._ledger.metadata.quorum, self._config, entry_bytes)
        async with aclosing(read_ahead(self._ranges, plan, first, last, timeout_s)) as batches:
            async for batch in batches:
                self._check_open()
                yield self._opened(batch)

    def _opened(self, batch: EntryBatch) -> EntryBatch:
        return batch if self._cipher is None else opened(batch, self._cipher)

    async def _make_visible(self, first: int, last: int, deadline: float) -> None:
        """Wait until the LAC has reached `last`, or raise."""
        _check_range(first, last, self.id)
        loop = asyncio.get_running_loop()
        if last > self.last_confirmed and not self.is_closed:
            await self.refresh_last_confirmed(timeout=max(0.0, deadline - loop.time()))
        if last > self.last_confirmed and not self.is_closed:
            await self._wait_for(EntryId(last), min(VISIBLE_WAIT_S, deadline - loop.time()))
        if last > self.last_confirmed:
            self._ranges.require_not_lost(EntryId(last))
            state = "closed" if self.is_closed else "open"
            raise EntryNotFoundError(
                f"entry {last} is beyond the last confirmed one, {self.last_confirmed}, of the "
                f"{state} ledger: use tail() to wait for new entries",
                ledger_id=self.id,
                entry_id=EntryId(last),
            )

    async def _wait_for(self, entry_id: EntryId, timeout_s: float) -> None:
        poller = TailPoller(self._ledger, self._keys, self._pool, self._config, self._rng)
        try:
            async with asyncio.timeout(timeout_s):
                while self.last_confirmed < entry_id and not self.is_closed:
                    await poller.wait()
                    self._check_open()
        except TimeoutError:
            return
        finally:
            await poller.aclose()

    def _deadline(self, timeout: float | None) -> float:
        limit_s = self._config.call_timeout_s if timeout is None else timeout
        return asyncio.get_running_loop().time() + limit_s

    def _read_timeout_s(self, timeout_s: float) -> float:
        """Return the time for one request of a call that may take this long."""
        return max(0.0, min(timeout_s, self._config.read_timeout_s))

    def _check_open(self) -> None:
        self._own_loop.require()
        if self._is_closed:
            raise LedgerClosedError("this reader is closed: open another one", ledger_id=self.id)


def _check_range(first: int, last: int, ledger_id: LedgerId) -> None:
    if first < 0 or last > ENTRY_ID_MAX:
        text = f"{first}..{last} is not a range of entries: use ids from 0 to {ENTRY_ID_MAX}"
        raise EntryNotFoundError(text, ledger_id=ledger_id)


__all__ = ["Entry", "EntryBatch", "LedgerError", "LedgerReader"]
