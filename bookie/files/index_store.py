"""Interface of the index's ordered key-value store with transactions.

Leaves the real store to `bookie.files.index_lmdb`, a store that can lose commits to the simulation,
and the meaning of keys to `bookie.index.index_pages`.

Invariant: a transaction is applied completely or not at all, and is durable when `update` has
returned.
Source: storage design, "Index" and "Threads".
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")


class StoreSizes(NamedTuple):
    """Sizes of a store, in bytes."""

    used_bytes: int
    """Bytes of pages in use or free for reuse: the file is at least this long."""
    map_bytes: int
    """Bytes that the store may grow to before it makes its map larger."""
    reusable_bytes: int = 0
    """Approximate part of `used_bytes` in pages that hold nothing any more."""
    pair_count: int = 0
    """Number of pairs, as the store itself counts them."""


class StoreTransaction(Protocol):
    """A consistent view of the store; keys and values are bytes, keys ordered as bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None without one."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value. Raises DiskFullError."""

    def delete(self, key: bytes) -> None:
        """Remove a key, if it exists."""

    def seek(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the first pair at or after `key`."""

    def before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last pair before `key`."""

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` pairs from `start` on, in order."""

    def scan_keys(self, start: bytes, limit: int) -> list[bytes]:
        """Return the keys that `scan` returns."""


class OrderedStore(Protocol):
    """A store with one writer at a time. Updates run one after another, in the order of the calls,
    and so do views. A view may run during an update.
    """

    async def view(self, job: Callable[[StoreTransaction], Result]) -> Result:
        """Run a job that only reads. It sees one state of the store: every update that was
        acknowledged before the call, and possibly later updates, each completely or not at all.
        """

    async def update(
        self, job: Callable[[StoreTransaction], Result], *, keeps_room: bool = False
    ) -> Result:
        """Run a job and commit it durably. `keeps_room`: the job can wait, so it does not use the
        last space of a disk that only the store fills; deletions need that space.

        Raises DiskFullError (nothing was applied), DiskFailedError (the commit did not sync: the
        bookie stops).
        """

    def sizes(self) -> StoreSizes:
        """Return how many bytes the store uses and may use. Never waits."""

    def growth_bytes(self, changes: int) -> int:
        """Return how many bytes the store's files may grow by when `changes` pairs change."""

    async def close(self) -> None:
        """Release the store."""
