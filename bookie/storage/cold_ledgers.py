"""Keeps requests for cold ledgers waiting until the ledgers' states have come from the index.

Leaves what is in memory to `bookie.storage.ledgers`, and the requests themselves to
`bookie.storage.bookie_storage`.

Invariants: requests for one ledger are carried out in the order in which they came, all of them in
the loop step in which its state has arrived; a request that finds no state then is for a ledger
that the index does not have.

Source: protocol rules 2.4, 4.3, 10.3.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from bookie.errors import BookieError
from bookie.index import ledger_state
from bookie.index.index import Index
from bookie.storage.ledgers import Ledgers
from bookie.storage.standing import Standing, StandingReader
from metadata.errors import MetadataError
from metadata.ids import LedgerId

Result = TypeVar("Result")

LOAD_LEDGERS: Final = 256
"""Ledgers that one look-up asks the index for."""
EVICTION_LOOKS: Final = 4
"""States that eviction looks at for each one that came."""
QUESTIONS_AT_ONCE: Final = 32
ASKING_S_MAX: Final = 5.0
"""How long a read of metadata may take before the answer is UNKNOWN."""
WAITING_OVERHEAD_BYTES: Final = 512
"""What a request that waits costs besides its batch, counted against the queue's bound."""


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A request that waits."""

    call: Callable[[], None]
    size: int
    stores: bool


class ColdLedgers:
    """Requests that wait for the states of their ledgers."""

    def __init__(self, ledgers: Ledgers, index: Index, wake: Callable[[], None]) -> None:
        """`wake` is called whenever `queued_bytes` has become less."""
        self.queued_bytes = 0
        self.failure: BookieError | None = None
        """Why the index did not answer: no ledger can be looked up any more."""
        self._ledgers = ledgers
        self._index = index
        self._wake = wake
        self.ask_standing: StandingReader | None = None
        """Reads metadata for ledgers that may have been deleted and trimmed (rule 10.3)."""
        self.standings: dict[int, Standing] = {}
        """Of the ledger whose requests are being carried out, if it was asked for."""
        self._waiting: dict[int, list[_Deferred]] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._may_ask = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._task: asyncio.Task[None] | None = None
        self._failed = asyncio.Event()

    def must_wait(self, ledger_id: int) -> bool:
        """Return whether a request for a ledger that is not hot must be deferred."""
        return ledger_id in self._waiting or self._ledgers.is_cold(ledger_id)

    def defer(
        self, ledger_id: int, size: int, call: Callable[[], None], *, stores: bool = False
    ) -> None:
        """Call once the ledger's state is in memory, behind what was deferred before; `size` bytes
        are kept until then. `stores`: the call may make the ledger known here.
        """
        size += WAITING_OVERHEAD_BYTES
        self.queued_bytes += size
        self._waiting.setdefault(ledger_id, []).append(_Deferred(call, size, stores=stores))
        if self._task is None:
            self._task = asyncio.create_task(self._load())

    async def run(
        self, ledger_id: int, call: Callable[[], Result], *, stores: bool = False
    ) -> Result:
        """Return what `call` returns: in this loop step if the ledger is hot, or was never seen
        here, else in its turn. `stores` as in `defer`.
        """
        if ledger_id in self._ledgers.states or not self.must_wait(ledger_id):
            return call()
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.defer(ledger_id, 0, partial(_resolve, result, call), stores=stores)
        return await result

    async def settle(self) -> None:
        """Wait for the requests that wait."""
        while self._task is not None or self._asking:
            await asyncio.gather(*filter(None, (self._task, *self._asking.values())))

    async def wait_for_failure(self) -> None:
        """Return never; raise what made the look-ups fail."""
        await self._failed.wait()
        assert self.failure is not None
        raise self.failure

    async def _load(self) -> None:
        while ledger_ids := self._next_ids():
            try:
                values = await self._index.stored_states(ledger_ids)
                for ledger_id, value in zip(ledger_ids, values, strict=True):
                    self._ledgers.take_in(ledger_id, value)
            except BookieError as error:
                self.failure = error  # from here on every request is answered UNKNOWN
                self._failed.set()
            for ledger_id in ledger_ids:
                if self._is_in_question(ledger_id):
                    task = asyncio.create_task(self._ask(ledger_id))
                    self._asking[ledger_id] = task
                else:
                    self._carry_out(ledger_id)
            self._ledgers.evict(EVICTION_LOOKS * len(ledger_ids))
            self._wake()
        self._task = None

    def _next_ids(self) -> list[int]:
        """Return the next ledgers to look up."""
        ids = (each for each in self._waiting if each not in self._asking)
        return list(itertools.islice(ids, LOAD_LEDGERS))

    def _is_in_question(self, ledger_id: int) -> bool:
        """Return whether a ledger may have been deleted and its tombstone trimmed, and somebody
        wants to store something for it.
        """
        return (
            ledger_id <= self._ledgers.horizon
            and self.failure is None
            and self._ledgers.is_cold(ledger_id)
            and any(deferred.stores for deferred in self._waiting[ledger_id])
        )

    async def _ask(self, ledger_id: int) -> None:
        """Read the metadata, which was gone before the tombstone was trimmed, and carry out."""
        standing = Standing.UNKNOWN
        try:
            if self.ask_standing is not None:
                async with self._may_ask, asyncio.timeout(ASKING_S_MAX):
                    standing = await self.ask_standing(LedgerId(ledger_id))
        except (MetadataError, TimeoutError):
            pass  # the answer is UNKNOWN, and the client asks again
        finally:
            del self._asking[ledger_id]
            self.standings[ledger_id] = standing
            self._carry_out(ledger_id)
            del self.standings[ledger_id]
            self._wake()

    def _carry_out(self, ledger_id: int) -> None:
        for deferred in self._waiting.pop(ledger_id):
            self.queued_bytes -= deferred.size
            try:
                deferred.call()
            except Exception as error:  # noqa: BLE001 - the other requests must be carried out
                context = {"message": "a deferred request failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


def _resolve(result: asyncio.Future[Result], call: Callable[[], Result]) -> None:
    """Give the result of a call to a future, unless the one that waited has gone."""
    if result.done():
        return
    try:
        result.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised where the result is awaited
        result.set_exception(error)


async def find_gone(
    ledgers: Ledgers, index: Index, ledger_ids: list[int]
) -> tuple[dict[int, None], dict[int, None]]:
    """Return those of some ledgers that are deleted, and those that are released. One of which that
    becomes so while the call runs may be missing.
    """
    deleted = dict.fromkeys(each for each in ledger_ids if ledgers.is_deleted(each))
    hot = (ledgers.states.get(each) for each in ledger_ids)
    released: dict[int, None] = {
        state.ledger_id: None for state in hot if state is not None and state.released
    }
    async for ledger_id, value in _stored(ledgers, index, ledger_ids):
        if value is None:
            continue
        if ledger_state.is_stored_deleted(value):
            deleted[ledger_id] = None
        elif ledger_state.is_stored_released(value):
            released[ledger_id] = None
    return deleted, released


async def find_held(ledgers: Ledgers, index: Index, ledger_ids: list[LedgerId]) -> list[LedgerId]:
    """Return those of some ledgers that are held or fenced."""
    held = dict.fromkeys(each for each in ledger_ids if each in ledgers.states)
    async for ledger_id, value in _stored(ledgers, index, ledger_ids):
        if value is not None and not ledger_state.is_stored_deleted(value):
            held[LedgerId(ledger_id)] = None
    return [each for each in ledger_ids if each in held]


async def list_held(
    ledgers: Ledgers, index: Index, after: int, limit: int
) -> tuple[list[LedgerId], int | None]:
    """See `BookieStorage.list_ledgers`."""
    stored, end = await index.list_held(after, limit)
    held = {each for each in stored if not ledgers.is_deleted(each)}
    held.update(
        each
        for each in ledgers.changed_ids()
        if each > after and (end is None or each <= end) and each in ledgers.states
    )
    page = [LedgerId(each) for each in sorted(held)]
    return (page, end) if len(page) <= limit else (page[:limit], page[limit - 1])


async def load_states(ledgers: Ledgers, index: Index, ledger_ids: Iterable[int]) -> None:
    """Bring the states of some ledgers into memory. Only while no `ColdLedgers` does the same."""
    async for ledger_id, value in _stored(ledgers, index, ledger_ids):
        ledgers.take_in(ledger_id, value)


async def _stored(
    ledgers: Ledgers, index: Index, ledger_ids: Iterable[int]
) -> AsyncIterator[tuple[int, bytes | None]]:
    cold = [each for each in ledger_ids if ledgers.is_cold(each)]
    for start in range(0, len(cold), LOAD_LEDGERS):
        part = cold[start : start + LOAD_LEDGERS]
        for found in zip(part, await index.stored_states(part), strict=True):
            yield found
