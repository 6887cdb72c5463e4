"""Ids of ledgers that one session allocated. Pure.

Leaves allocating them to the client, by compare-and-set of the counter.

Invariant: at most BLOCKS_MAX blocks are kept; the oldest is dropped, and its ids are unused.
"""

from collections import deque
from typing import Final

BLOCKS_MAX: Final = 64


class IdBlocks:
    """Blocks of ids, each from its first to below its end."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int]] = deque(maxlen=BLOCKS_MAX)

    def add(self, block: tuple[int, int]) -> None:
        """Add a block."""
        self._blocks.append(block)

    def has(self, number: int) -> bool:
        """Return whether a number is in a block."""
        return any(first <= number < end for first, end in self._blocks)
