"""News for all writers of one client: a bookie departed or drains, or a spare joined.

Leaves the reaction to each writer, and the time that it takes to `slices`.

Invariant: news that arrive while the writers are told the same are told to all of them once more.

Source: protocol rules 5.6 and 5.8.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol

from ledger_client.bookies.connection_calls import CallFailure
from ledger_client.bookies.pool import BookiePool
from ledger_client.writing.slices import Call, Slices
from metadata.ids import BookieId
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
    """Register of one client's writers."""

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
        members = dict.fromkeys(each for writer in self._writers for each in writer.members)
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
