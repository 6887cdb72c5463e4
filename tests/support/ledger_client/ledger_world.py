"""One ledger on bookies in memory, and its metadata: what the worlds of one ledger share."""

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from ledger_client.digest import LedgerKeys
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import StoreFaults
from metadata.store.memory_server import MemoryMetadataServer
from tests.support.ledger_client.memory_bookies import MemoryBookies

LEDGER = LedgerId(7)
BookiesT = TypeVar("BookiesT", bound=MemoryBookies)


class LedgerWorld(Generic[BookiesT]):
    """A ledger, the bookies a to f, and the metadata as its user and as others see them."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        bookies: Callable[[str, LedgerKeys], BookiesT],
        faults: StoreFaults | None = None,
    ) -> None:
        self.keys = LedgerKeys.of(metadata, b"secret")
        self.bookies = bookies("abcdef", self.keys)
        self.server = MemoryMetadataServer(faults)
        self.store = MemoryMetadataStore(self.server)
        self.ledgers = LedgerStore(self.store, Random(1), lambda: 0)
        self.others = LedgerStore(MemoryMetadataStore(self.server), Random(2), lambda: 0)

    async def stored(self) -> LedgerMetadata:
        return (await self.others.get(LEDGER, fresh=True))[0]

    async def change(self, *changes: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
        """Apply others' changes to the stored metadata, one after the other."""
        for change in changes:
            metadata, version = await self.others.get(LEDGER, fresh=True)
            await self.others.compare_and_set(change(metadata), version)


def payload(number: int) -> bytes:
    return b"entry %d" % number + b"." * (number % 5)


def payloads(first: int, count: int) -> list[bytes]:
    return [payload(number) for number in range(first, first + count)]


def length(stop: int) -> int:
    """Return the length of the ledger before an entry."""
    return sum(map(len, payloads(0, stop)))
