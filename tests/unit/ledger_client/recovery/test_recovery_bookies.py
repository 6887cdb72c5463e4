"""Requests of a recovery without a key: what a bookie's answer to a fence means (9.14)."""

import asyncio
from typing import cast

import pytest

from bookie.wire.codec import Entries
from bookie.wire.messages import FenceWithoutKey, LacReply, ReadEntries, ReadLac, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.recovery.recoverer import KeylessBookies
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId

A = BookieId("a")
L = LedgerId(7)
FENCE = ReadLac(L, fence=True)


class OneBookie:
    """Pool of which only one call is used."""

    def __init__(self, answer: LacReply | BookieCallError) -> None:
        self.answer = answer
        self.asked: list[FenceWithoutKey] = []

    async def fence_without_key(
        self, bookie_id: BookieId, request: FenceWithoutKey, *, timeout_s: float
    ) -> LacReply:
        assert (bookie_id, timeout_s) == (A, 5.0)
        self.asked.append(request)
        if isinstance(self.answer, BookieCallError):
            raise self.answer
        return self.answer


def bookies(answer: LacReply | BookieCallError) -> tuple[KeylessBookies, OneBookie]:
    pool = OneBookie(answer)
    return KeylessBookies(cast("BookiePool", pool)), pool


def reply(status: Status, highest: int = -1, *, fenced: bool = True) -> LacReply:
    return LacReply(status, NO_ENTRY, EntryId(highest), fenced)


def read(made: KeylessBookies, first: int = 0) -> Entries:
    request = ReadEntries(L, EntryId(first), EntryId(1023), 2**20, fence=True)
    return asyncio.run(made.read_entries(A, request, timeout_s=5.0))


def test_a_fence_returns_the_answer_of_the_bookie() -> None:
    made, pool = bookies(reply(Status.NO_SUCH_ENTRY))
    made.attach(L, bytes(32))
    assert asyncio.run(made.read_lac(A, FENCE, timeout_s=5.0)) == reply(Status.NO_SUCH_ENTRY)
    made.detach(L)
    assert pool.asked == [FenceWithoutKey(L)]


@pytest.mark.parametrize(
    "status", [Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER, Status.UNKNOWN, Status.UNAUTHORIZED]
)
def test_a_read_of_the_first_entry_fences_and_returns_its_status(status: Status) -> None:
    made, pool = bookies(reply(status))
    assert read(made) == Entries(status, NO_ENTRY, EntryId(0), ())
    assert pool.asked == [FenceWithoutKey(L)]


def test_entries_without_a_key_are_unknown() -> None:
    made, _ = bookies(reply(Status.OK, highest=4))
    with pytest.raises(BookieCallError, match="cannot be read without the ledger's key") as caught:
        read(made)
    assert caught.value.status is Status.UNKNOWN


def test_other_entries_are_unknown_and_not_asked_for() -> None:
    made, pool = bookies(reply(Status.NO_SUCH_ENTRY))
    with pytest.raises(BookieCallError, match="entry 5 cannot be read") as caught:
        read(made, 5)
    assert (caught.value.status, pool.asked) == (Status.UNKNOWN, [])


def test_other_failures_are_passed_on() -> None:
    error = BookieCallError(A, "lost", failure=CallFailure.LOST)
    made, _ = bookies(error)
    with pytest.raises(BookieCallError) as caught:
        read(made)
    assert caught.value is error
