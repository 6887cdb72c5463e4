"""Writes that are repeated until their outcome is certain, and changes of one value or node so.

Leaves the meaning of the value to its owner.

Invariants: a change is computed from the value that its compare-and-set replaces; a write with an
unknown outcome is decided by reading the value back: the old value decides nothing, so the same
write is sent again.

Source: protocol rules 1.2-1.4.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.store.interface import MetadataStore, Stored, find

Result = TypeVar("Result")

ATTEMPTS_MAX: Final = 1_000
"""Maximum number of attempts at one change of something that other processes change too; most fail
because another one came first.
"""

ValueChange = Callable[[bytes | None], bytes]
"""Function that returns the wanted value, which is the given one if it needs no change. The given
value is None if the node does not exist. It is called again after a conflict, and after an unknown
outcome unless its own result is read back.
"""

NodeChange = Callable[[bytes | None], bytes | None]
"""The same for a node that may also be removed; then it returns None."""


async def until_certain(
    rng: Random,
    attempt: Callable[[int], Awaitable[Result]],
    *,
    again: tuple[type[MetadataError], ...] = (),
    what: str = "",
) -> Result:
    """Repeat a write until its outcome is certain or the call is cancelled; a cancelled call may
    have been applied, or may still be. `attempt` takes how many attempts before it have an unknown
    outcome.

    Repeats after the errors `again` too. Raises what `attempt` raises, StoreUnavailableError only
    when nothing was written, and MetadataError after ATTEMPTS_MAX attempts at a change of `what`.
    """
    backoff = Backoff(rng)
    attempts = unknown_count = 0
    while not what or attempts < ATTEMPTS_MAX:
        attempts += 1
        try:
            return await attempt(unknown_count)
        except again:
            pass
        except OutcomeUnknownError:
            unknown_count += 1
        except StoreUnavailableError:
            if not unknown_count:
                raise
        await asyncio.sleep(backoff.next_s())
    raise MetadataError(f"{what} kept changing during {ATTEMPTS_MAX} attempts: try again")


async def change_value(store: MetadataStore, path: str, change: ValueChange, rng: Random) -> bytes:
    """Change a value, or create its node. Return the value as stored. Raises as `change_node`."""
    value = await change_node(store, path, change, rng)
    assert value is not None, "the change returns a value"
    return value


async def change_node(
    store: MetadataStore,
    path: str,
    change: NodeChange,
    rng: Random,
    *,
    check_room: Callable[[], Awaitable[None]] | None = None,
) -> bytes | None:
    """Change a value, create its node, or remove it. Return the value as stored; None if there is
    no node.

    Raises what `change` raises, and `check_room`, which is called before the node is created, and
    as `until_certain`.
    """
    wanted: bytes | None = None

    async def attempt(unknown_count: int) -> bytes | None:
        nonlocal wanted
        stored = await find(store, path)
        before = None if stored is None else stored.value
        if unknown_count and before == wanted:
            return wanted
        wanted = change(before)
        if wanted is not None and stored is None and check_room is not None:
            await check_room()
        await _write(store, path, wanted, stored)
        return wanted

    again = (NodeExistsError, NodeNotFoundError, VersionConflictError)
    return await until_certain(rng, attempt, again=again, what=path)


async def _write(
    store: MetadataStore, path: str, value: bytes | None, stored: Stored | None
) -> None:
    if value is None:
        if stored is not None:
            await store.delete(path, stored.version)
    elif stored is None:
        await store.create(path, value)
    elif stored.value != value:
        await store.compare_and_set(path, value, stored.version)
