"""Keeps what the cluster knows of this bookie current: that it is up, writable, and how much room
it has.

Leaves holding the registration, and how often it is rewritten, to `metadata.registrar`.

Invariant: the registrations of earlier processes on these disks are known by name, so that a
restart takes the place of a dead one at once; the lock on the disks proves that they are dead.

Source: protocol rule 2.1; metadata design, "Registration".
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from bookie.disk import Disk
from bookie.identity import HOLDER_NAME, read_mark, write_mark
from bookie.storage import BookieStorage
from metadata.ephemeral import HELD_WAIT_S, INCARNATION_BYTES
from metadata.errors import NameHeldError
from metadata.registrar import BookieRegistrar
from metadata.registration import BookieRegistration
from metadata.store import MetadataStore

REFRESH_INTERVAL_S: Final = 10.0
HOLDERS_MAX: Final = 4
"""Earlier processes remembered: one that died between writing its name and registering counts too.
"""


class Registration:
    """One bookie's registration, from `start` to `close`."""

    def __init__(
        self, storage: BookieStorage, registrar: BookieRegistrar, first: BookieRegistration
    ) -> None:
        self._storage = storage
        self._registrar = registrar
        self._first = first
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False

    async def start(self) -> None:
        """Register. Raises NameHeldError when another live process holds the bookie's id."""
        await self._registrar.start(held_wait_s=HELD_WAIT_S)
        self._storage.on_writable_change(self._refresh)
        self._refresh_and_schedule()

    async def leave(self) -> None:
        """Take the registration away, so that writers turn to others."""
        self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        await self._registrar.aclose()

    def _refresh_and_schedule(self) -> None:
        self._refresh()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REFRESH_INTERVAL_S, self._refresh_and_schedule)

    def _refresh(self) -> None:
        if not self._is_leaving:
            self._registrar.update(describe(self._storage, self._first))


def describe(storage: BookieStorage, first: BookieRegistration) -> BookieRegistration:
    """Return what is to be registered now."""
    statistics = storage.statistics()
    return replace(
        first,
        capacity_bytes=statistics.disk_total_bytes,
        free_bytes=statistics.disk_free_bytes,
        writable=storage.is_writable,
    )


async def make_registrar(
    disk: Disk,
    store: MetadataStore,
    registration: BookieRegistration,
    rng: Random,
    on_lost: Callable[[NameHeldError], None],
) -> BookieRegistrar:
    """Return a registrar that knows its dead predecessors, and note its own name for its
    successors.
    """
    data = await read_mark(disk, HOLDER_NAME) or b""
    size = INCARNATION_BYTES
    earlier = tuple(data[start : start + size] for start in range(0, len(data) - size + 1, size))
    registrar = BookieRegistrar(
        store, registration, rng, dead_incarnations=earlier, on_lost=on_lost
    )
    names = (*earlier, registrar.incarnation)[-HOLDERS_MAX:]
    await write_mark(disk, HOLDER_NAME, b"".join(names))
    return registrar
