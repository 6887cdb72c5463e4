"""Walks large collections slice by slice, with a pause after each.

Leaves what is done with a slice to its callers.

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
    """Return items slice by slice, for a caller that awaits something in each of them. Nothing may
    change the collection meanwhile.
    """
    left = iter(items)
    while part := list(islice(left, SLICE_ITEMS)):
        yield part


async def in_slices(items: Iterable[Item]) -> AsyncIterator[list[Item]]:
    """Return items slice by slice, to the end. Nothing may change the collection meanwhile."""
    for part in cut(items):
        yield part
        await asyncio.sleep(0)


async def in_order(items: Iterable[Comparable]) -> AsyncIterator[list[Comparable]]:
    """Return items slice by slice, to the end, in ascending order. Each slice is sorted by itself,
    and then all of them are merged.
    """
    parts: list[list[Comparable]] = []
    async for part in in_slices(items):
        part.sort()
        parts.append(part)
    async for part in in_slices(heapq.merge(*parts)):
        yield part
