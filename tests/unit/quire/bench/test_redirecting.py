"""A redirecting store differs from its superclass only in the addresses of bookies."""

from metadata.ids import BookieId
from metadata.paths import bookie_path
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.store.ephemeral import HeldNode, pack_held, unpack_held
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.bench.injection import redirected


async def test_only_the_address_that_is_redirected_changes() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    made = {}
    for name, port in (("one", 4001), ("two", 4002)):
        bookie_id = BookieId(name)
        made[name] = BookieRegistration(bookie_id, "127.0.0.1", port, location="/a/b/c")
        held = HeldNode(b"i" * 16, 7, REGISTRATION_CODEC.pack("a registration", made[name]))
        await store.create(bookie_path(bookie_id), pack_held(held))
    redirects = {"127.0.0.1:4001": "127.0.0.2:5001"}
    shown = {}
    for name in made:
        path = bookie_path(BookieId(name))
        stored = await store.get(path)
        held = unpack_held("x", redirected(path, stored, redirects).value)
        assert redirected("/elsewhere", stored, redirects) is stored
        assert (held.incarnation, held.session_id) == (b"i" * 16, 7)
        shown[name] = REGISTRATION_CODEC.unpack("a registration", held.content)
    assert (shown["one"].host, shown["one"].port) == ("127.0.0.2", 5001)
    assert (shown["one"].bookie_id, shown["one"].location) == ("one", "/a/b/c")
    assert shown["two"] == made["two"]
    await store.aclose()
