"""Cluster for tests of the client: metadata and bookies in memory."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from ledger_client import ClientConfig, ClientEvent, LedgerClient, Quorum
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import StoreFaults
from metadata.store.memory_server import MemoryMetadataServer
from tests.support.ledger_client.storing_bookie import StoringBookie

THREE = Quorum(ensemble=3, write=3, ack=2)
QUICK = ClientConfig(
    call_timeout_s=10.0, metadata_timeout_s=20.0, close_timeout_s=2.0, read_timeout_s=1.0
)


class TestCluster:
    """Cluster that opens clients on one set of bookies; `aclose` ends all of it."""

    __test__ = False

    def __init__(
        self, faults: StoreFaults | None = None, clock_ms: Callable[[], int | None] = lambda: None
    ) -> None:
        self.server = MemoryMetadataServer(faults, clock_ms=clock_ms)
        self.bookies: list[StoringBookie] = []
        self.clients: list[LedgerClient] = []
        self.stores: list[MemoryMetadataStore] = []
        self.events: list[ClientEvent] = []
        self._store = MemoryMetadataStore(self.server)

    async def add_bookie(self, *, writable: bool = True) -> StoringBookie:
        bookie = StoringBookie(f"bookie-{len(self.bookies)}")
        await bookie.start()
        await bookie.register(self._store, writable=writable)
        self.bookies.append(bookie)
        return bookie

    def bookie(self, bookie_id: str) -> StoringBookie:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def client(self, **changes: float) -> LedgerClient:
        store = MemoryMetadataStore(self.server)
        config = replace(QUICK, **changes)  # type: ignore[arg-type]
        client = LedgerClient.from_parts(
            store,
            rng=Random(len(self.clients) + 100),
            wall_clock_ms=lambda: 1_700_000_000_000,
            config=config,
            on_event=self.events.append,
        )
        self.clients.append(client)
        self.stores.append(store)
        return client

    async def aclose(self) -> None:
        for client in self.clients:
            await client.aclose()
        for bookie in self.bookies:
            await bookie.unregister()
            await bookie.stop()
        await self._store.aclose()


async def entries_of(
    client: LedgerClient, ledger_id: int, last: int, password: bytes = b""
) -> list[bytes]:
    async with client.open_ledger(ledger_id, password=password) as reader:
        return [entry.data async for batch in reader.read(0, last) for entry in batch]
