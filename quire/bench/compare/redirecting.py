"""Metadata store that replaces the registered addresses of bookies by those of proxies.

Leaves the proxy to `quire.bench.compare.delaying_proxy`, and everything else to the store.

Source: metadata design, "Registration".
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from metadata.paths import BOOKIES
from metadata.registry.registration import pack_registration, unpack_registration
from metadata.store.ephemeral import pack_held, unpack_held
from metadata.store.interface import Stored
from metadata.store.uri import parse_zookeeper_uri
from metadata.store.zookeeper.store import ZooKeeperMetadataStore
from quire.server.overriding import override


class RedirectingStore(ZooKeeperMetadataStore):
    """A store in ZooKeeper that replaces addresses in registrations."""

    def __init__(self, uri: str, rng: Random, redirects: Mapping[str, str]) -> None:
        super().__init__(parse_zookeeper_uri(uri), rng)
        self._redirects = redirects

    @override
    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        """Read a node; in a registration, replace the address."""
        stored = await super().get(path, fresh=fresh, agreed=agreed)
        return redirected(path, stored, self._redirects)


def redirected(path: str, stored: Stored, redirects: Mapping[str, str]) -> Stored:
    """Return a node with the address replaced, if it is the registration of a redirected bookie."""
    if not path.startswith(f"{BOOKIES}/"):
        return stored
    held = unpack_held(path, stored.value)
    registration = unpack_registration(held.content, path)
    other = redirects.get(f"{registration.host}:{registration.port}")
    if other is None:
        return stored
    host, _, port = other.rpartition(":")
    content = pack_registration(replace(registration, host=host, port=int(port)))
    return replace(stored, value=pack_held(replace(held, content=content)))
