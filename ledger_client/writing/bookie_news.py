"""What the writers of one client learn about bookies: departures, drains, spares, and returns.

Leaves the reaction to each writer, and the time that it takes to `pacing`.

Source: protocol rules 4.6, 5.5, 5.6, 5.8 and 11.3.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol

from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from ledger_client.bookies.pool import BookiePool
from ledger_client.tasks import BackgroundTasks
from ledger_client.writing.pacing import Call, Slices
from metadata.ids import BookieId, LedgerId
from metadata.registry.registration import BookieRegistration


class InformedWriter(Protocol):
    """A writer that receives news."""

    @property
    def members(self) -> tuple[BookieId, ...]:
        """The bookies of the last fragment."""

    def note_departed(self, bookie_id: BookieId, reason: str) -> None:
        """Receive the news that the registration of a member is gone, or that it drains."""

    def spare_joined(self) -> None:
        """Receive the news that a bookie joined or became writable."""


class WriterNews:
    """News for all writers of one client: a bookie departed or drains, or a spare joined.

    News that arrive while the writers are told the same are told to all of them once more.
    """

    def __init__(
        self,
        pool: BookiePool,
        slices: Slices,
        registered: Mapping[BookieId, BookieRegistration],
    ) -> None:
        """Create an empty register; `registered` is a live view of the registered bookies."""
        self._slices = slices
        self._registered = registered
        self._writers: dict[InformedWriter, None] = {}
        self._is_repeated: dict[str, bool] = {}
        """The rounds under way, by their news: whether each one must be repeated."""
        pool.on_unavailable(self._on_unavailable)

    def join(self, writer: InformedWriter) -> None:
        """Tell a writer the news from now on."""
        self._writers[writer] = None

    def leave(self, writer: InformedWriter) -> None:
        """Tell a writer no more news."""
        self._writers.pop(writer, None)

    def has_departed(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie's registration is gone now."""
        return bookie_id not in self._registered

    def drains(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie is registered and drains now."""
        known = self._registered.get(bookie_id)
        return known is not None and known.drains

    def remind_of_departed(self) -> None:
        """Tell the writers once more which of their members have departed or drain: there may have
        been no spare at first (5.6, 5.8).
        """
        members = dict.fromkeys(member for writer in self._writers for member in writer.members)
        for bookie_id in members:
            if self.has_departed(bookie_id):
                self._on_unavailable(
                    bookie_id, CallFailure.NOT_REGISTERED, "its registration is gone"
                )
            elif self.drains(bookie_id):
                self.note_drains(bookie_id)

    def note_drains(self, bookie_id: BookieId) -> None:
        """Tell the writers that a bookie drains (5.8)."""

        def tell(writer: InformedWriter) -> None:
            if bookie_id in writer.members and self.drains(bookie_id):
                writer.note_departed(bookie_id, "it is drained")

        self._tell(bookie_id, tell)

    def spare_joined(self) -> None:
        """Tell all writers that a bookie joined or became writable."""
        self._tell("", lambda writer: writer.spare_joined())

    def _on_unavailable(self, bookie_id: BookieId, failure: CallFailure, reason: str) -> None:
        # A lost connection is seen by its failed adds; a lost registration only here (5.6).
        if failure is not CallFailure.NOT_REGISTERED:
            return

        def tell(writer: InformedWriter) -> None:
            if bookie_id in writer.members and self.has_departed(bookie_id):
                writer.note_departed(bookie_id, reason)

        self._tell(bookie_id, tell)

    def _tell(self, news: str, tell: Callable[[InformedWriter], None]) -> None:
        is_new = news not in self._is_repeated
        self._is_repeated[news] = not is_new
        if is_new:
            self._slices.each(self._round(news, tell))

    def _round(self, news: str, tell: Callable[[InformedWriter], None]) -> Iterator[Call]:
        is_due = True
        while is_due:
            self._is_repeated[news] = False
            for writer in list(self._writers):
                if writer in self._writers:
                    yield partial(tell, writer)
            is_due = self._is_repeated[news]
        del self._is_repeated[news]


PROBE_PERIOD_S: Final = 1.0
RETURN_BYTES: Final = 1024 * 1024
"""Maximum unanswered bytes of a bookie that is taken back."""


class BookieProbes:
    """Probes of bookies for which the writers of one client wait.

    A bookie is probed at most once per period, however many writers wait for it. Each waiting
    writer is called once, after an answer that says that the bookie is writable. Failures are
    ignored: the next period tries again.
    """

    def __init__(self, pool: BookiePool, timeout_s: float, slices: Slices) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._slices = slices
        self._waiting: dict[BookieId, dict[LedgerId, Call]] = {}
        """The bookies that are probed, and for each the writers to call."""
        self._tasks = BackgroundTasks()

    def want(self, bookie_id: BookieId, ledger_id: LedgerId, on_ready: Call) -> None:
        """Call `on_ready` once when the bookie accepts adds; a repeated request has no effect."""
        waiting = self._waiting.get(bookie_id)
        if waiting is None:
            waiting = self._waiting[bookie_id] = {}
            self._tasks.start(self._probe(bookie_id, waiting))
        waiting.setdefault(ledger_id, on_ready)

    def cancel(self, ledger_id: LedgerId) -> None:
        """Call nothing for a ledger any more."""
        for waiting in self._waiting.values():
            waiting.pop(ledger_id, None)

    async def aclose(self) -> None:
        """Stop all probes."""
        await self._tasks.aclose()

    async def _probe(self, bookie_id: BookieId, waiting: dict[LedgerId, Call]) -> None:
        """Probe a bookie once per period until no writer waits for it."""
        try:
            while waiting:
                if await self._is_ready(bookie_id):
                    self._slices.each(list(waiting.values()))
                    waiting.clear()
                await asyncio.sleep(PROBE_PERIOD_S)
        finally:
            del self._waiting[bookie_id]

    async def _is_ready(self, bookie_id: BookieId) -> bool:
        if self._pool.unanswered_bytes(bookie_id) >= RETURN_BYTES:
            return False
        try:
            answer = await self._pool.ping(bookie_id, timeout_s=self._timeout_s)
        except BookieCallError:
            return False
        return answer.writable
