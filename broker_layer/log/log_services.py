"""What every log of one broker works with: the ledger client, the lists of ledgers, the clock, and
the memory that all logs share.

Leaves building them to `broker_process`.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from broker_layer.log.read_ahead import AheadMemory
from ledger_client import LedgerClient
from metadata.topics.partition_store import PartitionKey, PartitionStore

TAIL_BYTES_MAX: Final = 128 * 1024 * 1024
"""Recent batches kept in memory, over all logs of a broker."""
KEPT_COST_BYTES: Final = 256
"""What one batch that is kept costs beside its bytes."""
PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of one log that were admitted and are not committed; at the bound producers wait."""
PENDING_BATCHES_MAX: Final = 100_000
GROWTH_BYTES_MAX: Final = 1024 * 1024 * 1024
"""By how much a ledger may outgrow `segment.bytes` while no other can be begun, because the
metadata service or bookies are away; at the bound appends are refused."""


class TailOwner(Protocol):
    """Who keeps recent batches."""

    def forget_oldest(self) -> None:
        """Drop the oldest one kept."""
        ...


class TailMemory:
    """Counts the recent batches of all logs, and has the oldest dropped at the bound."""

    def __init__(self, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # Two lines instead of one of pairs: the collector of garbage would look at every pair.
        self._owners: deque[TailOwner] = deque()
        self._costs: deque[int] = deque()

    def keep(self, owner: TailOwner, size: int) -> None:
        """Count a batch that its owner has just kept."""
        cost = size + KEPT_COST_BYTES
        self._owners.append(owner)
        self._costs.append(cost)
        self._bytes += cost
        while self._bytes > self._bytes_max and len(self._owners) > 1:
            self._bytes -= self._costs.popleft()
            self._owners.popleft().forget_oldest()

    @property
    def kept_bytes(self) -> int:
        """Bytes kept now, with what keeping them costs."""
        return self._bytes


@dataclass(frozen=True, slots=True)
class LogServices:
    """What logs are built on. `wall_clock_ms` is the broker's clock, since 1970; `is_wanted` tells
    whether a topic has a partition, as of now: without it, whichever is claimed is made.
    """

    client: LedgerClient
    partitions: PartitionStore
    wall_clock_ms: Callable[[], int]
    rng: Random
    tail: TailMemory
    ahead: AheadMemory = field(default_factory=AheadMemory)
    pending_bytes_max: int = PENDING_BYTES_MAX
    pending_batches_max: int = PENDING_BATCHES_MAX
    growth_bytes_max: int = GROWTH_BYTES_MAX
    is_wanted: Callable[[PartitionKey], Awaitable[bool]] | None = None
