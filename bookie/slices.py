"""Iteration over large collections in slices, with a pause after each.

Leaves the work on a slice to its callers.

Invariant: a slice is short, and the event loop runs other callbacks between two slices.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Comparable = TypeVar("Comparable", bound=tuple[Any, ...])

SLICE_ITEMS: Final = 4_096


def cut(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield items in slices, for a caller that awaits in each slice. The collection must not change
    during the iteration.
    """
    left = iter(items)
    while part := list(islice(left, SLICE_ITEMS)):
        yield part


async def in_slices(items: Iterable[Item]) -> AsyncIterator[list[Item]]:
    """Yield items in slices. The collection must not change during the iteration."""
    for part in cut(items):
        yield part
        await asyncio.sleep(0)


async def in_order(items: Iterable[Comparable]) -> AsyncIterator[list[Comparable]]:
    """Yield items in slices, in ascending order. Each slice is sorted separately, then all are
    merged.
    """
    parts: list[list[Comparable]] = []
    async for part in in_slices(items):
        part.sort()
        parts.append(part)
    async for part in in_slices(heapq.merge(*parts)):
        yield part
