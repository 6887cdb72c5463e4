"""Life of a chain: from its creation to its removal, under one creation token.

A chain that is created again under the name of a deleted one starts at version 0 again, so a
compare-and-set, or a deletion, that was sent for the old chain could meet the new one. Therefore
every change of a chain also checks a node whose name contains the creation token, and the last step
of a deletion removes that node together with the head.

Leaves the creation to `chain_creation` and the other changes to `chain_store`.

Invariant: a change of one chain takes no effect on another chain of the same name.

Source: protocol rules 1.2, 1.3 and 10.2.
"""

import asyncio
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    NodeNotEmptyError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import UpdateToken, Version
from metadata.ledgers.chain import HEAD_CODEC
from metadata.paths import chain_creation_path, chain_life_path, chain_path
from metadata.store.interface import Check, Create, Delete, MetadataStore, find
from metadata.store.tree_deletion import drop_tree

FIRST_VERSION: Final = Version(0)

ChainLife = tuple[Check, ...]
"""Operations that fail in a multi once the chain is removed."""


def life_created(name: str, token: UpdateToken) -> Create:
    """Return the operation that begins the life of a chain."""
    return Create(chain_life_path(name, token), b"")


async def chain_life(store: MetadataStore, name: str) -> ChainLife:
    """Return the checks for changes of the chain that has this name now.

    Read them before the state that a change is based on.
    """
    path = chain_creation_path(name)
    names = await store.children(path, fresh=True)
    return tuple(Check(f"{path}/{child}", FIRST_VERSION) for child in names)


def is_over(life: ChainLife, error: NodeNotFoundError) -> bool:
    """Return whether a multi failed because the chain was removed."""
    return any(check.path == error.path for check in life)


async def remove_deleted(store: MetadataStore, name: str, rng: Random) -> None:
    """Remove a chain that is marked as deleted, with everything below it. Does nothing if there is
    no such chain. Raises StoreUnavailableError.
    """
    backoff = Backoff(rng)
    while True:
        life = await chain_life(store, name)
        head = await find(store, chain_path(name))
        if head is None or not HEAD_CODEC.unpack(chain_path(name), head.value).is_deleted:
            return
        try:
            creation_path = chain_creation_path(name)
            for child in await store.children(chain_path(name), fresh=True):
                path = f"{chain_path(name)}/{child}"
                if path != creation_path:
                    await drop_tree(store, path, rng, checks=life)
            creation = await store.get(creation_path, fresh=True)
            removed = [Delete(check.path, check.expected) for check in life]
            removed.append(Delete(creation_path, creation.version))
            await store.multi([*removed, Delete(chain_path(name), head.version)])
        except (NodeNotFoundError, NodeNotEmptyError, VersionConflictError, OutcomeUnknownError):
            await asyncio.sleep(backoff.next_s())  # the stored state decides
        else:
            return
