"""Deletion of nodes and trees of nodes, repeated until it is certain.

Leaves it to the caller that nothing is created below them any more. Each deletion takes effect
only while the nodes of the given checks exist.

Invariant: a new read decides an unknown outcome; a node that is gone already counts as deleted.

Source: protocol rule 1.3.
"""

from collections.abc import Sequence
from random import Random

from metadata.errors import (
    NodeNotEmptyError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.store.interface import Check, Delete, MetadataStore
from metadata.store.value_changes import until_certain


async def drop(
    store: MetadataStore, path: str, rng: Random, *, checks: Sequence[Check] = ()
) -> bool:
    """Delete a node, whatever its value. Returns False if it has children and stays. Raises
    StoreUnavailableError when nothing was written, NodeNotFoundError when the node of a check is
    gone.
    """

    async def attempt(_unknown_count: int) -> bool:
        try:
            stored = await store.get(path, fresh=True)
            if checks:
                await store.multi([*checks, Delete(path, stored.version)])
            else:
                await store.delete(path, stored.version)
        except NodeNotFoundError as error:
            if error.path != path:
                raise
        except NodeNotEmptyError:
            return False
        return True

    return await until_certain(rng, attempt, again=(VersionConflictError,))


async def drop_tree(
    store: MetadataStore, path: str, rng: Random, *, checks: Sequence[Check] = ()
) -> None:
    """Delete a node and everything below it; complete an interrupted deletion. Raises as `drop`."""
    while not await drop(store, path, rng, checks=checks):
        for name in await store.children(path):  # `drop` has just synced
            await drop_tree(store, f"{path}/{name}", rng, checks=checks)
