"""Queue of requests for cold ledgers. They wait until the index has returned the ledgers' states
and, for a ledger that it does not have, until the ledger's standing in the metadata is known.

Leaves states in memory to `bookie.storage.ledgers`, the requests themselves to
`bookie.storage.bookie_storage`, and the consequences of a standing to `bookie.storage.admission`.

Invariants: requests for one ledger run in the order of their arrival, all in the iteration of the
event loop in which its state has arrived; if a request finds no state then, the index does not have
the ledger.

Source: protocol rules 2.4, 4.3, 10.3.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from bookie.errors import BookieError
from bookie.index import replica_state
from bookie.index.index import Index
from bookie.queued_adds import QueuedAdds
from bookie.storage.horizon import LedgerStatus, LedgerStatusReader
from bookie.storage.ledgers import Ledgers
from metadata.errors import MetadataError
from metadata.ids import LedgerId

Result = TypeVar("Result")


LOAD_LEDGERS: Final = 256
"""Maximum number of ledgers in one look-up in the index."""
EVICTION_CHECKS: Final = 4
"""Number of states that eviction checks for each loaded ledger."""
STANDING_READS_MAX: Final = 32
STANDING_READ_S_MAX: Final = 5.0
"""Maximum duration of a read of metadata, in seconds; after it the answer is UNKNOWN."""
WAITING_OVERHEAD_BYTES: Final = 512
"""Memory of a waiting request besides its batch, counted against the queue's limit."""


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A waiting request."""

    call: Callable[[], None]
    size: int
    stores: bool


class ColdLedgers:
    """Requests that wait for the states of their ledgers."""

    def __init__(
        self,
        ledgers: Ledgers,
        index: Index,
        queued: QueuedAdds,
        wake: Callable[[], None],
        read_standing: LedgerStatusReader | None,
    ) -> None:
        """`wake` is called after each decrease of the bytes that wait. `read_standing` reads
        the metadata of a ledger that may have been deleted and trimmed (rule 10.3).
        """
        self.failure: BookieError | None = None
        """Error of the index: after it, no ledger can be looked up."""
        self._ledgers = ledgers
        self._queued = queued
        self._index = index
        self._wake = wake
        self._read_standing = read_standing
        self.standings: dict[int, LedgerStatus] = {}
        """LedgerStatus of the ledger whose requests are running now, if its metadata was read."""
        self._waiting: dict[int, list[_Deferred]] = {}
        self._standing_reads: dict[int, asyncio.Task[None]] = {}
        self._standing_slots = asyncio.Semaphore(STANDING_READS_MAX)
        self._task: asyncio.Task[None] | None = None
        self._failed = asyncio.Event()

    def must_wait(self, ledger_id: int) -> bool:
        """Return whether a request for a ledger without a state in memory must be deferred."""
        return ledger_id in self._waiting or self._ledgers.is_cold(ledger_id)

    def defer(
        self, ledger_id: int, size: int, call: Callable[[], None], *, stores: bool = False
    ) -> None:
        """Call `call` after the ledger's state has been loaded, after earlier deferred requests.
        `size` counts as queued bytes until then. `stores`: the call may store something for a new
        ledger.
        """
        size += WAITING_OVERHEAD_BYTES
        self._queued.cold_bytes += size
        self._waiting.setdefault(ledger_id, []).append(_Deferred(call, size, stores=stores))
        if self._task is None:
            self._task = asyncio.create_task(self._load())

    async def run(
        self, ledger_id: int, call: Callable[[], Result], *, stores: bool = False
    ) -> Result:
        """Return what `call` returns. It runs at once if the ledger is hot or was never seen here;
        otherwise after its state is loaded. `stores` is as in `defer`.
        """
        if ledger_id in self._ledgers.states or not self.must_wait(ledger_id):
            return call()
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.defer(ledger_id, 0, partial(_resolve, result, call), stores=stores)
        return await result

    async def settle(self) -> None:
        """Wait until no request is waiting."""
        while self._task is not None or self._standing_reads:
            await asyncio.gather(*filter(None, (self._task, *self._standing_reads.values())))

    async def wait_for_failure(self) -> None:
        """Wait until a look-up fails, and raise its error; never return."""
        await self._failed.wait()
        assert self.failure is not None
        raise self.failure

    async def _load(self) -> None:
        while ledger_ids := self._next_ids():
            try:
                values = await self._index.stored_states(ledger_ids)
                for ledger_id, value in zip(ledger_ids, values, strict=True):
                    self._ledgers.load(ledger_id, value)
            except BookieError as error:
                self.failure = error  # from now on every request is answered UNKNOWN
                self._failed.set()
            for ledger_id in ledger_ids:
                if self._needs_standing(ledger_id):
                    task = asyncio.create_task(self._run_with_standing(ledger_id))
                    self._standing_reads[ledger_id] = task
                else:
                    self._run_requests(ledger_id)
            self._ledgers.evict(EVICTION_CHECKS * len(ledger_ids))
            self._wake()
        self._task = None

    def _next_ids(self) -> list[int]:
        """Return the next ledgers to look up."""
        ids = (ledger_id for ledger_id in self._waiting if ledger_id not in self._standing_reads)
        return list(itertools.islice(ids, LOAD_LEDGERS))

    def _needs_standing(self, ledger_id: int) -> bool:
        """Return whether a waiting request stores something for a ledger that may have been deleted
        without a tombstone.
        """
        return (
            self._ledgers.may_be_deleted(ledger_id)
            and self.failure is None
            and self._ledgers.is_cold(ledger_id)
            and any(deferred.stores for deferred in self._waiting[ledger_id])
        )

    async def _run_with_standing(self, ledger_id: int) -> None:
        """Read the metadata, which was deleted before the tombstone was trimmed, or before the feed
        named the ledger; then run the requests.
        """
        standing = LedgerStatus.UNKNOWN
        try:
            if self._read_standing is not None:
                async with self._standing_slots, asyncio.timeout(STANDING_READ_S_MAX):
                    standing = await self._read_standing(LedgerId(ledger_id))
        except (MetadataError, TimeoutError):
            pass  # the answer is UNKNOWN, and the client repeats its request
        finally:
            del self._standing_reads[ledger_id]
            self.standings[ledger_id] = standing
            self._run_requests(ledger_id)
            del self.standings[ledger_id]
            self._wake()

    def _run_requests(self, ledger_id: int) -> None:
        for deferred in self._waiting.pop(ledger_id):
            self._queued.cold_bytes -= deferred.size
            try:
                deferred.call()
            except Exception as error:  # noqa: BLE001 - the other requests must run
                context = {"message": "a deferred request failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


def _resolve(result: asyncio.Future[Result], call: Callable[[], Result]) -> None:
    """Set a future to the result of a call, unless the future is done (its waiter was
    cancelled).
    """
    if result.done():
        return
    try:
        result.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised again by the future
        result.set_exception(error)


async def find_gone(
    ledgers: Ledgers, index: Index, ledger_ids: list[int]
) -> tuple[dict[int, None], dict[int, None]]:
    """Return which of some ledgers are deleted, and which are released. All of them have records
    before the mark. A ledger that is deleted or released during the call may be missing.

    Every ledger with records before the mark has a state in the index, until its tombstone is
    trimmed. So one at or below the horizon without a state was deleted.
    """
    deleted = dict.fromkeys(ledger_id for ledger_id in ledger_ids if ledgers.is_deleted(ledger_id))
    hot = (ledgers.states.get(ledger_id) for ledger_id in ledger_ids)
    released: dict[int, None] = {
        state.ledger_id: None for state in hot if state is not None and state.released
    }
    async for ledger_id, value in _stored(ledgers, index, ledger_ids):
        if value is None:
            if ledger_id <= ledgers.horizon and ledger_id not in ledgers.states:
                deleted[ledger_id] = None
        elif replica_state.is_stored_deleted(value):
            deleted[ledger_id] = None
        elif replica_state.is_stored_released(value):
            released[ledger_id] = None
    return deleted, released


async def find_held(ledgers: Ledgers, index: Index, ledger_ids: list[LedgerId]) -> list[LedgerId]:
    """Return which of some ledgers are stored or fenced here."""
    held = dict.fromkeys(ledger_id for ledger_id in ledger_ids if ledger_id in ledgers.states)
    async for ledger_id, value in _stored(ledgers, index, ledger_ids):
        if value is not None and not replica_state.is_stored_deleted(value):
            held[LedgerId(ledger_id)] = None
    return [ledger_id for ledger_id in ledger_ids if ledger_id in held]


async def list_held(
    ledgers: Ledgers, index: Index, after: int, limit: int
) -> tuple[list[LedgerId], int | None]:
    """See `BookieStorage.list_ledgers`."""
    stored, end = await index.list_held(after, limit)
    held = {ledger_id for ledger_id in stored if not ledgers.is_deleted(ledger_id)}
    held.update(
        id_
        for id_ in ledgers.changed_ids()
        if id_ > after and (end is None or id_ <= end) and id_ in ledgers.states
    )
    page = [LedgerId(ledger_id) for ledger_id in sorted(held)]
    return (page, end) if len(page) <= limit else (page[:limit], page[limit - 1])


async def load_states(ledgers: Ledgers, index: Index, ledger_ids: Iterable[int]) -> None:
    """Load the states of some ledgers. Not to be called while a `ColdLedgers` loads states."""
    async for ledger_id, value in _stored(ledgers, index, ledger_ids):
        ledgers.load(ledger_id, value)


async def _stored(
    ledgers: Ledgers, index: Index, ledger_ids: Iterable[int]
) -> AsyncIterator[tuple[int, bytes | None]]:
    cold = [ledger_id for ledger_id in ledger_ids if ledgers.is_cold(ledger_id)]
    for start in range(0, len(cold), LOAD_LEDGERS):
        part = cold[start : start + LOAD_LEDGERS]
        for pair in zip(part, await index.stored_states(part), strict=True):
            yield pair
