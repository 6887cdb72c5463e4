"""Identity of the cluster, and the check that a cluster exists.

Leaves the identities of bookies to `cookies.py`.

Invariants: the cluster's instance is created once and never changes; a client or a command that
finds none changes nothing; metadata whose restore has not ended is no cluster, and is not made one.

Source: protocol rule 2.1; metadata design.
"""

from random import Random
from typing import Final

from metadata.errors import (
    ClusterNotFoundError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    RestoreUnfinishedError,
)
from metadata.gateway.opening import open_store
from metadata.paths import INSTANCE, RESTORE
from metadata.records import codec_of_one, sized
from metadata.store.interface import (
    OPERATION_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    MetadataStore,
    find,
)

INSTANCE_BYTES: Final = 16
INSTANCE_CODEC: Final = codec_of_one("instance", sized(INSTANCE_BYTES))


async def require_cluster(store: MetadataStore) -> bytes:
    """Return the cluster's random identity. Raises ClusterNotFoundError if there is no cluster,
    RestoreUnfinishedError while one is being restored.
    """
    try:
        return INSTANCE_CODEC.unpack(INSTANCE, (await store.get(INSTANCE, fresh=True)).value)
    except NodeNotFoundError:
        if await find(store, RESTORE) is not None:
            raise RestoreUnfinishedError(store.address) from None
        raise ClusterNotFoundError(store.address) from None


async def ensure_cluster(store: MetadataStore, rng: Random) -> bytes:
    """Return the cluster's random identity; the first caller creates it."""
    try:
        return await require_cluster(store)
    except ClusterNotFoundError:
        instance = rng.randbytes(INSTANCE_BYTES)
    try:
        await store.create(INSTANCE, INSTANCE_CODEC.pack(INSTANCE, instance))
    except (NodeExistsError, OutcomeUnknownError):
        return await require_cluster(store)
    return instance


async def create_cluster(uri: str, rng: Random) -> tuple[bytes, bool]:
    """Create the cluster at an address, and its path; return its identity, and whether it is new.
    An existing cluster stays as it is. Raises the errors of `open_store`.
    """
    store = await open_store(uri, rng=rng)
    try:
        try:
            return await require_cluster(store), False
        except ClusterNotFoundError:
            return await ensure_cluster(store, rng), True
    finally:
        await store.aclose()


async def open_cluster_store(
    uri: str,
    *,
    rng: Random,
    operation_timeout_s: float = OPERATION_TIMEOUT_S,
    session_timeout_s: float = SESSION_TIMEOUT_S,
) -> MetadataStore:
    """Connect to the metadata of an existing cluster. Raises ClusterNotFoundError, and the errors
    of `open_store`.
    """
    store = await open_store(
        uri,
        rng=rng,
        operation_timeout_s=operation_timeout_s,
        session_timeout_s=session_timeout_s,
        make_root=False,
    )
    try:
        await require_cluster(store)
    except BaseException:
        await store.aclose()
        raise
    return store
