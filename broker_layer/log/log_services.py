"""Services shared by all logs of one broker: ledger client, lists of ledgers, clock and memory.

Leaves building them to `broker_process`.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol

from broker_layer.log.read_ahead import AheadMemory
from ledger_client import LedgerClient
from metadata.topics.partition_store import PartitionKey, PartitionStore

TAIL_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum number of bytes of recent batches in memory, over all logs of a broker."""
KEPT_COST_BYTES: Final = 256
"""Memory of one kept batch in addition to its bytes."""
PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum number of bytes of one log that are admitted and not committed; then producers wait."""
PENDING_BATCHES_MAX: Final = 100_000
"""Maximum number of batches of one log that are admitted and not committed."""
DEFERRED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum number of bytes of batches that wait for a ledger or for room in one, over all logs of a
broker. Requests that timed out, or whose connections are closed, left them there."""
BUFFERS_RATIO_MAX: Final = 4
"""Bytes that stay in memory are copied if their buffers have more than so many times as many. Only
the bytes are counted, and one batch may be a part of a frame of 100 MiB."""
DRAIN_S: Final = 10.0
"""Maximum time that a log that is handed over waits for admitted batches, in seconds."""
GROWTH_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Maximum number of bytes by which a ledger may exceed `segment.bytes` while no next ledger can be
created, because the metadata service or bookies do not answer; then appends are refused."""


class TailOwner(Protocol):
    """An owner of recent batches."""

    def drop_oldest(self) -> None:
        """Drop the oldest kept batch."""


class TailMemory:
    """Memory of the recent batches of all logs; drops the oldest at the limit."""

    def __init__(self, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # Two queues instead of one of pairs: the garbage collector would visit every pair.
        self._owners: deque[TailOwner] = deque()
        self._costs: deque[int] = deque()

    def keep(self, owner: TailOwner, size: int) -> None:
        """Count a batch that its owner now keeps."""
        cost = size + KEPT_COST_BYTES
        self._owners.append(owner)
        self._costs.append(cost)
        self._bytes += cost
        while self._bytes > self._bytes_max and len(self._owners) > 1:
            self._bytes -= self._costs.popleft()
            self._owners.popleft().drop_oldest()


@dataclass(frozen=True, slots=True)
class LogServices:
    """Services that logs use.

    `wall_clock_ms` is the broker's clock, in ms since 1970. `partition_exists` returns whether a
    topic has a partition now; if it is None, every partition that is claimed is created.
    """

    client: LedgerClient
    partitions: PartitionStore
    wall_clock_ms: Callable[[], int]
    rng: Random
    tail: TailMemory
    ahead: AheadMemory = field(default_factory=AheadMemory)
    deferred: AheadMemory = field(default_factory=partial(AheadMemory, DEFERRED_BYTES_MAX))
    pending_bytes_max: int = PENDING_BYTES_MAX
    pending_batches_max: int = PENDING_BATCHES_MAX
    growth_bytes_max: int = GROWTH_BYTES_MAX
    partition_exists: Callable[[PartitionKey], Awaitable[bool]] | None = None
