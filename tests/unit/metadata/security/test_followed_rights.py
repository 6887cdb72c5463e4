"""Rights of new nodes: by the record, and none are created while it cannot be read."""

import random

import pytest

from metadata.errors import MetadataFormatError
from metadata.paths import LEDGERS, NODE_RIGHTS
from metadata.security.followed_rights import FollowedRights
from metadata.security.rights_record import RIGHTS_NODE, NodeRights
from metadata.store.memory import MemoryMetadataStore
from quire.identity.zookeeper_access import digest_identity
from tests.until import until

RIGHTS = NodeRights((digest_identity("servers:0123456789abcdef"),))
DAMAGED = b"no record"


def _is_refused(followed: FollowedRights) -> bool:
    try:
        followed.access_to(LEDGERS)
    except MetadataFormatError:
        return True
    return False


async def test_new_nodes_have_the_rights_of_the_record(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    followed = FollowedRights(store, rng)
    await followed.start()
    assert followed.access_to(LEDGERS) is None, "without a record nodes are open"
    await store.create(NODE_RIGHTS, RIGHTS_NODE.pack(RIGHTS))
    await until(lambda: followed.access_to(LEDGERS) == RIGHTS.access_to(LEDGERS))
    await followed.aclose()


async def test_nothing_is_created_while_the_record_cannot_be_read(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    followed = FollowedRights(store, rng)
    await store.create(NODE_RIGHTS, RIGHTS_NODE.pack(RIGHTS))
    await followed.start()
    stored = await store.get(NODE_RIGHTS)
    await store.compare_and_set(NODE_RIGHTS, DAMAGED, stored.version)
    await until(lambda: _is_refused(followed) or followed.access_to(LEDGERS) is None)
    with pytest.raises(MetadataFormatError):
        followed.access_to(LEDGERS)
    await followed.aclose()


async def test_a_record_that_cannot_be_read_prevents_a_start(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    await store.create(NODE_RIGHTS, DAMAGED)
    followed = FollowedRights(store, rng)
    with pytest.raises(MetadataFormatError):
        await followed.start()
    await followed.aclose()
