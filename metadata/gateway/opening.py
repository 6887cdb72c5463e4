"""Opens the metadata store that a URI names: ZooKeeper itself, or a gateway to it.

Leaves the form of the URI to `metadata.store.uri`, and the stores to their modules.
"""

from random import Random
from typing import TYPE_CHECKING

from metadata.store.interface import OPERATION_TIMEOUT_S, SESSION_TIMEOUT_S, MetadataStore
from metadata.store.uri import GATEWAY_SCHEME, MetadataUri, parse_metadata_uri
from metadata.store.zookeeper.store import open_store as open_zookeeper
from quire.identity.client_file import identity_in

if TYPE_CHECKING:
    from metadata.gateway.store import GatewayMetadataStore


async def open_store(
    uri: str,
    *,
    rng: Random,
    operation_timeout_s: float = OPERATION_TIMEOUT_S,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    make_root: bool = True,
) -> MetadataStore:
    """Connect to `zk://h1:2181,h2:2181/chroot` or `gateway://h1:2188,h2:2188`. With `make_root`,
    create a missing chroot of ZooKeeper.

    Raises InvalidUriError, SecurityError for a client's file that cannot be used,
    StoreUnavailableError when no server answers within `operation_timeout_s`, and
    AccessRefusedError for a login that is not one of the cluster.
    """
    where = parse_metadata_uri(uri)
    if where.scheme == GATEWAY_SCHEME:
        return await _open_gateway(where, rng, operation_timeout_s, session_timeout_s)
    return await open_zookeeper(
        uri,
        rng=rng,
        operation_timeout_s=operation_timeout_s,
        session_timeout_s=session_timeout_s,
        make_root=make_root,
    )


async def _open_gateway(
    where: MetadataUri, rng: Random, operation_timeout_s: float, session_timeout_s: float
) -> "GatewayMetadataStore":
    from metadata.gateway.store import GatewayMetadataStore  # noqa: PLC0415 - few clients need it

    store = GatewayMetadataStore(
        where,
        identity_in(where.client_file).contexts,
        rng,
        operation_timeout_s=operation_timeout_s,
        session_timeout_s=session_timeout_s,
    )
    try:
        await store.connect()
    except BaseException:
        await store.aclose()
        raise
    return store
