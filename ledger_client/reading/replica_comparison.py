"""Comparison of two bookies' copies of one ledger, entry by entry, as ranges with one verdict.

Leaves reading each bookie to `ledger_client.reading.replica_reading`, and the expected location of
entries to the caller.

Invariants: the ranges ascend, do not overlap, and cover every entry that either bookie holds; two
entries are equal when their writer's digests are; memory is bounded by one answer of each bookie.
Source: protocol rules 4.2 and 9.4.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from ledger_client.reading.replica_reading import ReadOutcome, ReplicaPiece, ReplicaReading
from metadata.ledgers.entry_ranges import Range


class RangeVerdict(StrEnum):
    """Verdict on a range of entries at bookies A and B."""

    EQUAL = "equal"
    DIFFERENT = "different"
    """Both hold the entries with valid digests, and the digests differ."""
    ONLY_A = "only-a"
    ONLY_B = "only-b"
    UNREADABLE_A = "unreadable-a"
    """A lists the entries and cannot return them undamaged; B can."""
    UNREADABLE_B = "unreadable-b"
    UNREADABLE = "unreadable"
    """Neither can return the entries undamaged."""


class ComparedRange(NamedTuple):
    """Consecutive entries with one verdict."""

    first: int
    last: int
    verdict: RangeVerdict


_OF_OUTCOMES = {
    (ReadOutcome.READ, ReadOutcome.MISSING): RangeVerdict.ONLY_A,
    (ReadOutcome.MISSING, ReadOutcome.READ): RangeVerdict.ONLY_B,
    (ReadOutcome.READ, ReadOutcome.BAD): RangeVerdict.UNREADABLE_B,
    (ReadOutcome.BAD, ReadOutcome.READ): RangeVerdict.UNREADABLE_A,
}


async def compare_replicas(
    a: ReplicaReading, b: ReplicaReading
) -> AsyncGenerator[ComparedRange, None]:
    """Yield the verdict on every entry that A or B holds; adjacent ranges with the same verdict are
    joined. Raises BookieCallError.
    """
    joined: ComparedRange | None = None
    async with aclosing(_parts(a, b)) as parts:
        async for part in parts:
            if joined is None:
                joined = part
            elif joined.verdict is part.verdict and joined.last + 1 == part.first:
                joined = joined._replace(last=part.last)
            else:
                yield joined
                joined = part
    if joined is not None:
        yield joined


async def _parts(a: ReplicaReading, b: ReplicaReading) -> AsyncGenerator[ComparedRange, None]:
    async with aclosing(a.stored_ranges()) as held_a, aclosing(b.stored_ranges()) as held_b:
        in_a, in_b = await anext(held_a, None), await anext(held_b, None)
        while in_a is not None or in_b is not None:
            if in_b is None or (in_a is not None and in_a[0] < in_b[0]):
                assert in_a is not None
                last = in_a[1] if in_b is None else min(in_a[1], in_b[0] - 1)
                yield ComparedRange(in_a[0], last, RangeVerdict.ONLY_A)
                in_a = await _behind(in_a, last, held_a)
            elif in_a is None or in_b[0] < in_a[0]:
                last = in_b[1] if in_a is None else min(in_b[1], in_a[0] - 1)
                yield ComparedRange(in_b[0], last, RangeVerdict.ONLY_B)
                in_b = await _behind(in_b, last, held_b)
            else:
                last = min(in_a[1], in_b[1])
                async for part in _compare_both(a, b, in_a[0], last):
                    yield part
                in_a, in_b = await _behind(in_a, last, held_a), await _behind(in_b, last, held_b)


async def _behind(held: Range, last: int, more: AsyncIterator[Range]) -> Range | None:
    """Return the part of a range after `last`, or the next range."""
    return (last + 1, held[1]) if held[1] > last else await anext(more, None)


async def _compare_both(
    a: ReplicaReading, b: ReplicaReading, first: int, last: int
) -> AsyncGenerator[ComparedRange, None]:
    """Compare entries that both bookies list, reading both in pieces."""
    async with aclosing(a.read(first, last)) as pieces_a, aclosing(b.read(first, last)) as pieces_b:
        piece_a, piece_b = await anext(pieces_a), await anext(pieces_b)
        while True:
            end = min(piece_a.last, piece_b.last)
            for part in _judge(_cut(piece_a, first, end), _cut(piece_b, first, end)):
                yield part
            if end == last:
                return
            first = end + 1
            piece_a = await anext(pieces_a) if piece_a.last == end else piece_a
            piece_b = await anext(pieces_b) if piece_b.last == end else piece_b


def _cut(piece: ReplicaPiece, first: int, last: int) -> ReplicaPiece:
    digests = piece.digests[first - piece.first : last + 1 - piece.first]
    return ReplicaPiece(first, last, piece.outcome, digests)


def _judge(a: ReplicaPiece, b: ReplicaPiece) -> list[ComparedRange]:
    """Compare two pieces of the same entries."""
    if (a.outcome, b.outcome) != (ReadOutcome.READ, ReadOutcome.READ):
        verdict = _OF_OUTCOMES.get((a.outcome, b.outcome), RangeVerdict.UNREADABLE)
        return [ComparedRange(a.first, a.last, verdict)]
    judged: list[ComparedRange] = []
    first = a.first
    for is_equal, group in groupby(x == y for x, y in zip(a.digests, b.digests, strict=True)):
        count = sum(1 for _ in group)
        verdict = RangeVerdict.EQUAL if is_equal else RangeVerdict.DIFFERENT
        judged.append(ComparedRange(first, first + count - 1, verdict))
        first += count
    return judged
