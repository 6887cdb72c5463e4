"""Metadata store that replaces the registered addresses of bookies by those of proxies.

Leaves the proxy to `quire.bench.compare.delaying_proxy`, and everything else to the store.

Source: metadata design, "Registration".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metadata.ids import Version
from metadata.paths import BOOKIES
from metadata.registry.registration import pack_registration, unpack_registration
from metadata.store.ephemeral import pack_held, unpack_held
from metadata.store.interface import (
    Cancel,
    MetadataStore,
    Operation,
    SessionCallback,
    SessionState,
    Stored,
    WatchCallback,
)


class RedirectingStore:
    """A metadata store that replaces addresses in registrations and passes everything else
    through.
    """

    def __init__(self, store: MetadataStore, redirects: Mapping[str, str]) -> None:
        self._store = store
        self._redirects = redirects

    @property
    def address(self) -> str:
        """Address of the service."""
        return self._store.address

    @property
    def session_state(self) -> SessionState:
        """Current state of the session."""
        return self._store.session_state

    @property
    def session_id(self) -> int:
        """Id of the current session."""
        return self._store.session_id

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = True
    ) -> Version:
        """Create a node."""
        return await self._store.create(path, value, ephemeral=ephemeral, make_parents=make_parents)

    async def get(self, path: str, *, fresh: bool = False) -> Stored:
        """Read a node; in a registration, replace the address."""
        stored = await self._store.get(path, fresh=fresh)
        if not path.startswith(f"{BOOKIES}/"):
            return stored
        held = unpack_held(path, stored.value)
        registration = unpack_registration(held.content, path)
        other = self._redirects.get(f"{registration.host}:{registration.port}")
        if other is None:
            return stored
        host, _, port = other.rpartition(":")
        content = pack_registration(replace(registration, host=host, port=int(port)))
        return replace(stored, value=pack_held(replace(held, content=content)))

    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        """Write a node if the version matches."""
        return await self._store.compare_and_set(path, value, expected)

    async def delete(self, path: str, expected: Version) -> None:
        """Delete a node if the version matches."""
        await self._store.delete(path, expected)

    async def children(self, path: str, *, fresh: bool = False) -> list[str]:
        """Return the sorted names below a node."""
        return await self._store.children(path, fresh=fresh)

    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        """Apply all operations, or none."""
        return await self._store.multi(operations)

    def watch_value(self, path: str, callback: WatchCallback) -> Cancel:
        """Call `callback` after each change of a node."""
        return self._store.watch_value(path, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Call `callback` after each change of the names below a node."""
        return self._store.watch_children(path, callback)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Call `callback` at every change of the session's state."""
        return self._store.on_session(callback)

    async def aclose(self) -> None:
        """End the session."""
        await self._store.aclose()
