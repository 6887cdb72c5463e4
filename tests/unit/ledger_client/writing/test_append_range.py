"""Admission of a range: batches, the window, progress, and the tasks that run meanwhile."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, cast

import pytest

from ledger_client.errors import EntryTooLargeError, LedgerFencedError, QuorumTimeoutError
from ledger_client.writing.admission import (
    TICK_BYTES,
    Admission,
    AppendedRange,
    BatchLimits,
    EntryLike,
    append_range,
)
from ledger_client.writing.outbox import ENTRY_COST_BYTES, AppendWindow
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec
from tests.simulation.loop import run_simulation, simulation_loop

LEDGER = LedgerId(7)


class Writer:
    """Writer that keeps what is pushed; entries are confirmed when a test says so."""

    def __init__(self, *, window_entries: int = 1_000, window_bytes: int = 1 << 20) -> None:
        self.ledger_id = LEDGER
        self.limits = BatchLimits(entries_max=8, bytes_max=100, entry_bytes_max=2_000)
        self.quorum = QuorumSpec(3, 3, 2, 12)
        self.window = AppendWindow(window_bytes, window_entries)
        self.next_entry_id = EntryId(0)
        self.batches: list[list[bytes]] = []
        self.on_push: Callable[[], None] = lambda: None

    def push_batch(self, payloads: list[bytes], payload_bytes: int) -> EntryId:
        assert payload_bytes == sum(map(len, payloads))
        first = self.next_entry_id
        self.window.take(payload_bytes, len(payloads))
        self.batches.append(payloads)
        self.next_entry_id = EntryId(first + len(payloads))
        self.on_push()
        return first

    def push_entry(self, payload: bytes, payload_bytes: int) -> EntryId:
        return self.push_batch([payload], payload_bytes)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


async def admit(
    writer: Writer, entries: Iterable[EntryLike] | AsyncIterable[EntryLike], done: AppendedRange
) -> None:
    await append_range(cast("Admission", writer), entries, done)


async def as_they_come(entries: list[bytes]) -> AsyncIterator[bytes]:
    for entry in entries:
        yield entry


def instantly(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what must not wait, in virtual time."""

    async def timed() -> None:
        await main()
        assert simulation_loop().time() == 0.0

    run_simulation(timed, 1, until_s=60)


def test_a_range_is_cut_where_batches_and_stripes_end() -> None:
    async def main() -> None:
        writer, done = Writer(), AppendedRange()
        writer.next_entry_id = EntryId(3)
        await admit(writer, [b"%d" % n for n in range(30)], done)
        assert writer.sizes == [8, 1, 8, 4, 8, 1]
        assert [each for batch in writer.batches for each in batch] == [
            b"%d" % n for n in range(30)
        ]
        assert (done.first, done.count) == (3, 30)

    instantly(main)


def test_large_entries_are_cut_by_their_bytes() -> None:
    async def main() -> None:
        writer, done = Writer(), AppendedRange()
        await admit(writer, (bytes(40) for _ in range(5)), done)
        assert writer.sizes == [2, 2, 1]
        assert (done.first, done.count) == (0, 5)

    instantly(main)


def test_entries_that_come_one_by_one_are_pushed_one_by_one() -> None:
    async def main() -> None:
        writer, done = Writer(), AppendedRange()
        writer.next_entry_id = EntryId(3)
        await admit(writer, as_they_come([b"a", b"bc", b""]), done)
        assert writer.batches == [[b"a"], [b"bc"], [b""]]
        assert (done.first, done.count) == (3, 3)

    instantly(main)


def test_an_empty_range_pushes_nothing() -> None:
    async def main() -> None:
        nothing: list[bytes] = []
        for entries in (nothing, as_they_come(nothing)):
            writer, done = Writer(), AppendedRange()
            await admit(writer, entries, done)
            assert (writer.batches, done.first, done.count) == ([], NO_ENTRY, 0)

    instantly(main)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("by_bytes", [False, True])
def test_a_range_waits_for_room_in_the_window(*, is_async: bool, by_bytes: bool) -> None:
    """Each second one entry is confirmed. The window is filled completely, and never more."""
    cost = 10 + ENTRY_COST_BYTES

    async def main() -> None:
        writer, done, loop = Writer(), AppendedRange(), simulation_loop()
        writer.limits = BatchLimits(1, 100, 2_000)
        writer.window = AppendWindow(2 * cost, 99) if by_bytes else AppendWindow(1 << 20, 2)
        pushed_at: list[float] = []
        writer.on_push = lambda: pushed_at.append(loop.time())
        for second in range(1, 6):
            loop.call_later(second, writer.window.release, 10, 1)
        entries = [bytes(10)] * 6
        await admit(writer, as_they_come(entries) if is_async else entries, done)
        assert pushed_at == pytest.approx([0.0, 0.0, 1.0, 2.0, 3.0, 4.0])

    run_simulation(main, 1, until_s=60)


async def ticks_at_pushes(writer: Writer, entries: list[bytes] | AsyncIterator[bytes]) -> list[int]:
    """Return how often other tasks had run before each push."""
    ticks: list[int] = []
    count = 0

    async def tick() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0)
            count += 1

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    writer.on_push = lambda: ticks.append(count)
    await admit(writer, entries, AppendedRange())
    ticking.cancel()
    return [each - ticks[0] for each in ticks]


async def test_other_tasks_run_between_two_batches() -> None:
    assert await ticks_at_pushes(Writer(), [b"x"] * 24) == [0, 1, 2, 3]


async def test_other_tasks_run_while_a_source_never_waits() -> None:
    """Each time that enough bytes have come, counted from zero."""
    whole = [bytes(1024 - ENTRY_COST_BYTES)] * 255
    less, exact = bytes(1023 - ENTRY_COST_BYTES), bytes(1024 - ENTRY_COST_BYTES)
    assert TICK_BYTES == 256 * 1024
    entries = [*whole, less, exact, *whole, less, exact, *whole, exact, exact]
    ticks = await ticks_at_pushes(Writer(), as_they_come(entries))
    assert ticks == [0] * 257 + [1] * 257 + [2] * 256 + [3]


def test_a_source_that_never_waits_is_not_delayed() -> None:
    async def main() -> None:
        entries = [bytes(1024 - ENTRY_COST_BYTES)] * 600
        await admit(Writer(), as_they_come(entries), AppendedRange())

    instantly(main)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_entry_that_is_too_large_ends_the_range(*, is_async: bool) -> None:
    async def main() -> None:
        writer, done = Writer(), AppendedRange()
        entries = [b"x"] * 12 + [bytes(2_001)]
        with pytest.raises(EntryTooLargeError):
            await admit(writer, as_they_come(entries) if is_async else entries, done)
        assert (done.first, done.count) == (0, 12)

    instantly(main)


# -- progress in errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lac", "confirmed"), [(-1, 0), (3, 0), (4, 0), (5, 1), (8, 4), (9, 5), (10, 5), (99, 5)]
)
def test_an_error_says_how_many_entries_are_confirmed(lac: int, confirmed: int) -> None:
    done = AppendedRange()
    done.note(EntryId(5), 2)
    done.note(EntryId(7), 3)
    error = done.describe(LedgerFencedError("fenced", ledger_id=LEDGER), EntryId(lac))
    assert isinstance(error, LedgerFencedError)
    assert (error.first_entry_id, error.entry_id) == (5, 5)
    assert (error.admitted_count, error.confirmed_count) == (5, confirmed)
    assert error.outcome == "unknown"


def test_an_error_before_the_first_entry_keeps_its_outcome() -> None:
    error = QuorumTimeoutError("no room", ledger_id=LEDGER, outcome="not_written")
    described = AppendedRange().describe(error, EntryId(9))
    assert described.outcome == "not_written"
    assert (described.admitted_count, described.confirmed_count) == (0, 0)
    assert described.first_entry_id == NO_ENTRY


def test_an_entry_with_an_id_may_be_written_whatever_the_error_says() -> None:
    done = AppendedRange()
    done.note(EntryId(0), 1)
    error = QuorumTimeoutError("no room", ledger_id=LEDGER, outcome="not_written")
    assert done.describe(error, NO_ENTRY).outcome == "unknown"
