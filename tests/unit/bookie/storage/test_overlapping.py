"""Batches whose entries may be stored already: comparison, gaps and waiting (rule 4.3)."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from bookie.errors import DiskFailedError
from bookie.index.replica_state import ReplicaState
from bookie.queued_adds import QueuedAdds
from bookie.storage.overlapping import (
    COMPARISON_OVERHEAD_BYTES,
    Gaps,
    OverlappingAdd,
    OverlappingAdds,
    QueuedAdd,
)
from bookie.storage.reading import BadRanges
from bookie.storage.recent import RecentEntries
from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_batch, make_run, payload_of
from tests.until import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.index.index import Index
    from bookie.log.log import Log
    from bookie.storage.reading import StorageReader


class Storage:
    """Stored batches of one ledger behind the interfaces of log, index and reader."""

    def __init__(self, *stored: BatchView) -> None:
        self.stored = list(stored)
        self.damaged: list[tuple[int, int]] = []
        """First and last entries of runs that the index names and that cannot be read."""
        self.failure: Exception | None = None
        self.items: list[QueuedAdd] = []
        self.before_answer: Callable[[], None] = lambda: None
        self.after_look_up: Callable[[], None] = lambda: None
        """Called before the result of a look-up is used."""
        self.inside = 0
        self.reads = self.barriers = self.woken = 0
        self.state = ReplicaState(LedgerId(7))
        self.state.accepted_highest = 99
        self.bad = BadRanges()
        self.recent = RecentEntries(1 << 20)
        self.queued = QueuedAdds(1 << 20)
        self.adds = OverlappingAdds(
            cast("Log", self),
            cast("Index", self),
            cast("StorageReader", self),
            self.recent,
            self._wake,
        )
        self.answers: list[Status | Gaps] = []
        self.refusals: list[Status] = []

    def _wake(self) -> None:
        self.woken += 1

    def unanswered(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(context=item) for item in [None, *self.items]]

    async def barrier(self) -> None:
        self.barriers += 1
        self.items.clear()
        self.state.queued_count = 0

    async def read_or_raise(
        self, _state: ReplicaState, first: int, last: int, _bytes_max: int
    ) -> SimpleNamespace:
        assert self.inside == 0, "one comparison of a ledger at a time"
        self.inside += 1
        await asyncio.sleep(0)
        self.inside -= 1
        self.reads += 1
        self.before_answer()
        for batch in self.stored:
            if batch.header.first_entry_id <= first <= batch.header.last_entry_id:
                following = batch.header.last_entry_id + 1
                status = Status.OK if following > last else Status.NO_SUCH_ENTRY
                if any(b.header.first_entry_id == following for b in self.stored):
                    status = Status.OK
                return SimpleNamespace(batches=[batch.data], next_entry_id=following, status=status)
        return SimpleNamespace(batches=[], next_entry_id=first, status=Status.NO_SUCH_ENTRY)

    async def look_up(
        self, _ledger_id: int, first: int, last: int, _highest: int, _limit: int
    ) -> SimpleNamespace:
        named = [(b.header.first_entry_id, b.header.last_entry_id) for b in self.stored]
        runs = sorted(
            (0, max(first, low))
            for low, high in named + self.damaged
            if high >= first and low <= last
        )
        self.after_look_up()
        return SimpleNamespace(runs=runs)

    def add(self, batch: BatchView) -> None:
        self.adds.add(
            OverlappingAdd(
                self.state,
                batch,
                self.answers.append,
                lambda: self.refusals.pop() if self.refusals else None,
                self.answers.append,
            )
        )

    def answer(self, batch: BatchView) -> list[Status | Gaps]:
        async def run() -> None:
            self.add(batch)
            await self.adds.settle()

        asyncio.run(within(run()))
        assert self.queued.accepted_bytes == 0
        assert self.state.use_count == 0
        return self.answers


def test_the_same_entries_again_are_ok() -> None:
    assert Storage(make_run(7, 0, 4)).answer(make_run(7, 0, 4)) == [Status.OK]
    assert Storage(make_run(7, 0, 9)).answer(make_run(7, 2, 3)) == [Status.OK]
    assert Storage(make_run(7, 0, 3), make_run(7, 3, 3)).answer(make_run(7, 1, 4)) == [Status.OK]


@pytest.mark.parametrize("changed", range(4))
def test_another_length_or_other_bytes_are_a_conflict(changed: int) -> None:
    payloads = [payload_of(7, 2 + number) for number in range(4)]
    for other in (payloads[changed] + b"x", bytes(len(payloads[changed]))):
        batch = make_batch(7, 2, [*payloads[:changed], other, *payloads[changed + 1 :]])
        assert Storage(make_run(7, 0, 9)).answer(batch) == [Status.CONFLICT]
    moved = make_batch(7, 2, [payloads[1], payloads[0], *payloads[2:]])
    assert Storage(make_run(7, 0, 9)).answer(moved) == [Status.CONFLICT]


@pytest.mark.parametrize(
    ("stored", "gaps"),
    [
        ([], [(0, 9)]),
        ([(0, 3)], [(3, 9)]),
        ([(7, 3)], [(0, 6)]),
        ([(3, 3)], [(0, 2), (6, 9)]),
        ([(1, 2), (5, 2)], [(0, 0), (3, 4), (7, 9)]),
        ([(0, 5), (5, 3)], [(8, 9)]),
    ],
)
def test_what_is_missing_is_accepted(stored: list[tuple[int, int]], gaps: Gaps) -> None:
    storage = Storage(*(make_run(7, first, count) for first, count in stored))
    assert storage.answer(make_run(7, 0, 10)) == [gaps]
    assert storage.woken == 1


def test_a_damaged_run_is_replaced_entry_by_entry_and_joined() -> None:
    storage = Storage(make_run(7, 0, 3))
    storage.damaged = [(4, 6)]
    assert storage.answer(make_run(7, 0, 10)) == [[(3, 9)]]
    storage = Storage(make_run(7, 2, 1))
    storage.damaged = [(3, 4)]
    assert storage.answer(make_run(7, 0, 10)) == [[(0, 1), (3, 9)]]
    storage = Storage(make_run(7, 0, 3), make_run(7, 8, 2))
    storage.damaged = [(3, 3)]
    assert storage.answer(make_run(7, 0, 10)) == [[(3, 7)]]


def test_a_recent_batch_needs_no_comparison() -> None:
    storage, batch = Storage(), make_run(7, 0, 3)
    storage.recent.put(batch)
    assert storage.answer(make_run(7, 0, 3)) == [Status.OK]
    assert (storage.reads, storage.woken) == (0, 0)
    storage.answers.clear()
    assert storage.answer(make_run(7, 0, 2)) == [[(0, 1)]], "the batch is another"


def test_a_refusal_comes_immediately_before_the_acceptance() -> None:
    for stored in ([], [make_run(7, 0, 3)], [make_run(7, 0, 3, size=5)]):
        storage = Storage(*stored)
        storage.refusals = [Status.FENCED]
        assert storage.answer(make_run(7, 0, 3)) == [Status.FENCED]


def queued(storage: Storage, first: int, count: int) -> QueuedAdd:
    return QueuedAdd(storage.state, make_run(7, first, count), None, lambda _status: None)


@pytest.mark.parametrize(
    ("first", "count", "waits"), [(0, 2, 0), (0, 3, 1), (2, 9, 1), (5, 1, 1), (6, 1, 0), (9, 1, 0)]
)
def test_an_add_in_the_queue_that_overlaps_is_awaited(first: int, count: int, waits: int) -> None:
    storage = Storage()
    storage.items, storage.state.queued_count = [queued(storage, first, count)], 1
    assert storage.answer(make_run(7, 2, 4)) == [[(2, 5)]]
    assert storage.barriers == waits


def test_an_add_of_another_ledger_is_not_awaited() -> None:
    storage, other = Storage(), Storage()
    storage.items, storage.state.queued_count = [queued(other, 0, 9)], 1
    storage.answer(make_run(7, 2, 4))
    assert storage.barriers == 0


def test_an_add_that_is_accepted_during_the_comparison_is_compared_too() -> None:
    storage = Storage()
    storage.state.accepted_highest = 1

    def accept() -> None:
        if storage.reads == 1:
            storage.state.accepted_highest = 4
            storage.stored.append(make_run(7, 2, 3))

    storage.after_look_up = accept
    assert storage.answer(make_run(7, 0, 5)) == [[(0, 1)]]


def test_an_add_below_the_highest_entry_is_not_compared_again() -> None:
    storage = Storage(make_run(7, 0, 5))
    storage.state.accepted_highest = 4

    def accept() -> None:
        storage.state.accepted_highest += 1

    storage.before_answer = accept
    assert storage.answer(make_run(7, 0, 5)) == [Status.OK]
    assert storage.reads == 1


def test_an_add_that_was_queued_during_the_comparison_is_awaited() -> None:
    storage = Storage()

    def accept() -> None:
        if storage.reads == 1:
            storage.items, storage.state.queued_count = [queued(storage, 0, 9)], 1

    storage.before_answer = accept
    assert storage.answer(make_run(7, 2, 4)) == [[(2, 5)]]
    assert (storage.reads, storage.barriers) == (2, 1)


def test_a_failed_log_answers_unknown() -> None:
    storage = Storage(make_run(7, 0, 3))
    storage.failure = DiskFailedError("log", "x")
    assert storage.answer(make_run(7, 0, 3)) == [Status.UNKNOWN]
    assert storage.reads == 0
    assert storage.woken == 1

    async def run() -> list[BaseException | None]:
        storage.add(make_run(7, 0, 3))
        return await asyncio.gather(*storage.adds._tasks.values(), return_exceptions=True)

    assert asyncio.run(run()) == [None], "the answer says it"


def test_a_failure_that_is_no_refusal_is_raised_after_the_answer() -> None:
    storage = Storage()

    def fail() -> None:
        raise ZeroDivisionError

    storage.before_answer = fail

    async def run() -> list[BaseException | None]:
        storage.add(make_run(7, 0, 3))
        return await asyncio.gather(*storage.adds._tasks.values(), return_exceptions=True)

    (found,) = asyncio.run(run())
    assert isinstance(found, ZeroDivisionError)
    assert storage.answers == [Status.UNKNOWN]
    assert (storage.queued.accepted_bytes, storage.state.use_count) == (0, 0)


def test_comparisons_of_a_ledger_wait_for_each_other_and_count() -> None:
    storage, batches = Storage(), [make_run(7, 0, 3), make_run(7, 0, 3), make_run(7, 5, 2)]
    running: list[int] = []

    async def run() -> None:
        for batch in batches:
            storage.add(batch)
        assert storage.state.use_count == 3
        whole = sum(len(batch.data) + COMPARISON_OVERHEAD_BYTES for batch in batches)
        assert storage.queued.accepted_bytes == whole
        storage.before_answer = lambda: running.append(len(storage.answers))
        await storage.adds.settle()
        assert not storage.adds._locks

    asyncio.run(within(run()))
    assert running == [0, 1, 2], "one after another"
    assert (storage.queued.accepted_bytes, storage.state.use_count) == (0, 0)
    assert storage.woken == 3


def test_settling_waits_for_all_also_if_one_fails() -> None:
    storage = Storage()

    def fail() -> None:
        if storage.reads == 1:
            raise ZeroDivisionError

    storage.before_answer = fail

    async def run() -> None:
        storage.add(make_run(7, 0, 3))
        storage.add(make_run(7, 5, 2))
        await storage.adds.settle()

    asyncio.run(within(run()))
    assert storage.answers == [Status.UNKNOWN, [(5, 6)]]


def test_an_add_that_comes_while_another_waits_takes_its_turn() -> None:
    """The second one begins when the first has ended, and the third comes at that time."""
    storage = Storage()

    async def run() -> None:
        for first in (0, 5):
            storage.add(make_run(7, first, 3))
        for _ in range(50):
            await asyncio.sleep(0)
            if storage.answers:
                break
        assert len(storage.answers) == 1
        storage.add(make_run(7, 10, 3))
        await storage.adds.settle()

    asyncio.run(within(run()))
    assert storage.answers == [[(0, 2)], [(5, 7)], [(10, 12)]]
