"""Reader of one ledger, open or closed, that never affects its writer.

Leaves requests to `range_reader.py` and `read_ahead.py`, waiting for new entries to `tailing.py`,
and the ledger's state to `followed_ledger.py`.

Invariants: only `read_unconfirmed` returns entries beyond the LAC; the LAC never goes back.

Source: protocol section 8; api design, "Client".
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from random import Random
from typing import Final, Self

from ledger_client.batches import Entry, EntryBatch
from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.ledger_cipher import LedgerCipher
from ledger_client.encryption.opened_batch import opened
from ledger_client.errors import (
    EntryNotFoundError,
    LedgerClosedError,
    LedgerError,
    QuorumTimeoutError,
    agreed_end_unknown,
)
from ledger_client.handle import Handle, ledger_text
from ledger_client.info import LedgerInfo
from ledger_client.observability import EventCallback
from ledger_client.own_loop import LoopGuard, in_own_loop
from ledger_client.reading.followed_ledger import FollowedLedger, OwnWriter
from ledger_client.reading.lac_reading import read_lac
from ledger_client.reading.range_reader import RangeReader
from ledger_client.reading.read_ahead import ReadPlan, read_ahead
from ledger_client.reading.reader_hold import ReaderHold
from ledger_client.reading.tailing import TailPoller
from metadata.ids import ENTRY_ID_MAX, EntryId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore

VISIBLE_WAIT_S: Final = 0.5
"""Time for which a read waits for an entry beyond the LAC: an idle writer sends its LAC sooner."""


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
        found = self._batches(EntryId(first), EntryId(last_wanted), timeout)
        async with aclosing(found) as batches:
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
        found = self._batches(EntryId(first), EntryId(last), timeout, entry_bytes)
        async with aclosing(found) as batches:
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
