"""Deletes nodes, and trees of nodes, until that is certain.

Leaves it to the caller that nothing below them is made any more.

Invariant: an unknown outcome is decided by looking again; a node that is gone already is well.

Source: protocol rule 1.3.
"""

import asyncio
from random import Random

from metadata.backoff import Pauses
from metadata.errors import (
    NodeNotEmptyError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.store.interface import MetadataStore


async def drop(store: MetadataStore, path: str, rng: Random) -> bool:
    """Delete a node, whatever its value; False: it stays, as it has children. Raises
    StoreUnavailableError when nothing was written.
    """
    pauses = Pauses(rng)
    is_unknown = False
    while True:
        try:
            stored = await store.get(path, fresh=True)
            await store.delete(path, stored.version)
            return True
        except NodeNotFoundError:
            return True
        except NodeNotEmptyError:
            return False
        except OutcomeUnknownError:
            is_unknown = True
        except VersionConflictError:
            pass
        except StoreUnavailableError:
            if not is_unknown:
                raise
        await asyncio.sleep(pauses.next_s())


async def drop_tree(store: MetadataStore, path: str, rng: Random) -> None:
    """Delete a node and all that is below it; again, if a deletion was cut off."""
    while not await drop(store, path, rng):
        for name in await store.children(path, fresh=True):
            await drop_tree(store, f"{path}/{name}", rng)
