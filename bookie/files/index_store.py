"""States what the index asks of an ordered key-value store with transactions.

Leaves the real one to `bookie.files.index_lmdb` and the lost-commit twin to the simulation; the
meaning of keys to `bookie.index.index_pages`.

Invariant: a transaction is applied whole or not at all, and is durable when `run` has returned.
Source: storage design, "Index" and "Threads".
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")


class StoreSizes(NamedTuple):
    """Bytes of a store."""

    used_bytes: int
    """Pages in use or free for use again: the file is at least as long."""
    map_bytes: int
    """Bytes that the store may grow to before it makes its map larger."""
    reusable_bytes: int = 0
    """Of the used ones, those of pages that hold nothing any more, about."""


class Transaction(Protocol):
    """A consistent view of the store; keys and values are bytes, keys ordered as bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return a value."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value. Raises DiskFullError."""

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""

    def seek(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the first pair at or after `key`."""

    def before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last pair before `key`."""

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` pairs from `start` on, in order."""


class OrderedStore(Protocol):
    """A store with one writer at a time. Updates run one after the other, in the order in which
    they were given, and so do views. A view may run while an update does.
    """

    async def view(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads. It sees one state of the store: every update that was
        acknowledged before the call, and perhaps later ones, each of them whole or not at all.
        """

    async def update(
        self, job: Callable[[Transaction], Result], *, keeps_room: bool = False
    ) -> Result:
        """Run a job and commit it durably. `keeps_room`: a job that can wait does not take the last
        room of a disk that only the store fills; deletions need it.

        Raises DiskFullError (nothing was applied), DiskFailedError (the commit did not sync: the
        bookie stops).
        """

    def sizes(self) -> StoreSizes:
        """Return how many bytes the store uses, and how many it may use; never waits."""

    def growth_bytes(self, changes: int) -> int:
        """Return how many bytes the store's files may grow by when so many pairs change."""

    async def close(self) -> None:
        """Release the store."""
