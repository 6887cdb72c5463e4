"""A parent that is removed while the in-memory store makes the nodes above a path."""

from metadata.ids import Version
from metadata.store.interface import Delete
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults, reach


async def test_a_creation_makes_a_parent_that_was_removed_again() -> None:
    faults = ScriptedFaults(reach("/a/b"))
    server = MemoryMetadataServer(faults)
    other, store = MemoryMetadataStore(server), MemoryMetadataStore(server)

    async def remove() -> None:
        server.apply(other.session_id, [Delete("/a", Version(0))])

    faults.meanwhile = remove
    assert await store.create("/a/b/c", b"x") == 0
    assert faults.meanwhile is None
    assert (await store.get("/a/b/c")).value == b"x"
    await other.aclose()
    await store.aclose()
