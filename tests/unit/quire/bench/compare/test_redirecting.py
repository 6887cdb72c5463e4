"""A redirecting store is a metadata store that differs only in bookies' addresses."""

from collections.abc import AsyncIterator

import pytest

from metadata.ids import BookieId
from metadata.paths import bookie_path
from metadata.registry.registration import (
    BookieRegistration,
    pack_registration,
    unpack_registration,
)
from metadata.store.ephemeral import HeldNode, pack_held, unpack_held
from metadata.store.interface import MetadataStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.bench.compare.redirecting import RedirectingStore
from tests.contracts.metadata_store import MetadataStoreContract


class RedirectedService:
    """A server in memory, and redirecting stores on it."""

    def __init__(self) -> None:
        self.server = MemoryMetadataServer()
        self.stores: list[MemoryMetadataStore] = []

    async def connect(self) -> MetadataStore:
        self.stores.append(MemoryMetadataStore(self.server))
        return RedirectingStore(self.stores[-1], {})

    async def interrupt(self, store: MetadataStore) -> None:
        self._behind(store).suspend()
        self._behind(store).resume()

    async def expire(self, store: MetadataStore) -> None:
        self._behind(store).expire()

    def _behind(self, store: MetadataStore) -> MemoryMetadataStore:
        return next(each for each in self.stores if each.session_id == store.session_id)


class TestRedirectingStore(MetadataStoreContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[RedirectedService]:
        service = RedirectedService()
        yield service
        for store in service.stores:
            await store.aclose()


async def test_only_the_address_that_is_redirected_changes() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    made = {}
    for name, port in (("one", 4001), ("two", 4002)):
        bookie_id = BookieId(name)
        made[name] = BookieRegistration(bookie_id, "127.0.0.1", port, location="/a/b/c")
        held = HeldNode(b"i" * 16, 7, pack_registration(made[name]))
        await store.create(bookie_path(bookie_id), pack_held(held))
    redirecting = RedirectingStore(store, {"127.0.0.1:4001": "127.0.0.2:5001"})
    shown = {}
    for name in made:
        held = unpack_held("x", (await redirecting.get(bookie_path(BookieId(name)))).value)
        assert (held.incarnation, held.session_id) == (b"i" * 16, 7)
        shown[name] = unpack_registration(held.content)
    assert (shown["one"].host, shown["one"].port) == ("127.0.0.2", 5001)
    assert (shown["one"].bookie_id, shown["one"].location) == ("one", "/a/b/c")
    assert shown["two"] == made["two"]
    await store.aclose()
