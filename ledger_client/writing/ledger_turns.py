"""Turns of one client's ledgers: a limited number of them works at the same time.

Leaves the work to its owners: changes of the metadata to `append_shell`, copies to
`in_sync_members`. Leaves batches of requests to `metadata.store.batching`.

A bookie that leaves or returns concerns many ledgers. A ledger that waits for a turn to leave out a
member that it can still use, or to take one back, continues meanwhile. A ledger that confirms
nothing until its change is stored comes first.

Invariants: fewer than `at_once_max` tasks are under way when a turn begins; the turns begin in the
order in which they were requested, the urgent ones first; a turn is requested once for each key.

Source: protocol rules 5.2, 5.6 and 11.3; metadata design, "Storms".
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger_client.writing.slices import Call, Slices
from metadata.ids import LedgerId

if TYPE_CHECKING:
    import asyncio

TurnKey = tuple[LedgerId, str]
"""A ledger, and what the turn is for."""


class LedgerTurns:
    """Queue of the ledgers of one client that wait for a turn."""

    def __init__(self, at_once_max: int, slices: Slices) -> None:
        self._at_once_max = at_once_max
        self._slices = slices
        self._urgent: OrderedDict[TurnKey, Call] = OrderedDict()
        self._waiting: OrderedDict[TurnKey, Call] = OrderedDict()
        self._under_way = 0
        self._is_beginning = False

    def want(self, key: TurnKey, begin: Call, *, urgent: bool) -> None:
        """Call `begin` when it is the ledger's turn; it passes the task that it starts, if it does,
        to `count`. A later request with the same key keeps the place of the first one.
        """
        if urgent:
            self._waiting.pop(key, None)
            self._urgent[key] = begin
        elif key not in self._urgent:
            self._waiting[key] = begin
        self._begin_next()

    def count(self, work: "asyncio.Task[None]") -> None:
        """Count a task as under way until it ends."""
        self._under_way += 1
        work.add_done_callback(self._ended)

    def _ended(self, _work: "asyncio.Task[None]") -> None:
        self._under_way -= 1
        self._begin_next()

    @property
    def _has_turn_for_next(self) -> bool:
        has_next = bool(self._urgent or self._waiting)
        return has_next and self._under_way < self._at_once_max

    def _begin_next(self) -> None:
        if not self._is_beginning and self._has_turn_for_next:
            self._is_beginning = True
            self._slices.each(self._begins())

    def _begins(self) -> Iterator[Call]:
        while self._has_turn_for_next:
            queue = self._urgent or self._waiting
            yield queue.popitem(last=False)[1]
        self._is_beginning = False
