"""A parent that is removed while the in-memory store makes the nodes above a path."""

from typing_extensions import override

from metadata.ids import Version
from metadata.store.interface import Delete
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall


class ParentRemoved(NoFaults):
    """Removes /a once, right before its child takes effect."""

    def __init__(self) -> None:
        self.server: MemoryMetadataServer | None = None
        self.remover = 0

    @override
    async def before(self, call: StoreCall) -> None:
        if call.path == "/a/b" and self.server is not None:
            server, self.server = self.server, None
            server.apply(self.remover, [Delete("/a", Version(0))])


async def test_a_creation_makes_a_parent_that_was_removed_again() -> None:
    faults = ParentRemoved()
    faults.server = server = MemoryMetadataServer(faults)
    other, store = MemoryMetadataStore(server), MemoryMetadataStore(server)
    faults.remover = other.session_id
    assert await store.create("/a/b/c", b"x") == 0
    assert faults.server is None
    assert (await store.get("/a/b/c")).value == b"x"
    await other.aclose()
    await store.aclose()
