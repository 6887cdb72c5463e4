"""Registration of this process, as a bookie or as a client.

Leaves holding the node to `ephemeral.py`, and the content of a bookie's registration to
`registration.py`.

Invariants: one live process holds a bookie's id; a change of free space alone is written at most
once a minute.

Source: metadata design, "Registration" and "Clients"; protocol rules 2.1 and 9.2.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from metadata.errors import NameHeldError
from metadata.ids import ClientId
from metadata.paths import bookie_path, client_path
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration, rewrite_due_s
from metadata.store.ephemeral import HELD_WAIT_S, EphemeralKeeper
from metadata.store.interface import MetadataStore

CLIENT_ID_BYTES: Final = 8


class BookieRegistrar:
    """Registration of one bookie, kept across sessions.

    `incarnation` identifies this process; its position carries the same value. `dead_incarnations`
    belong to processes that the caller has proved dead (rule 2.8): their registration is replaced
    at once. `on_lost` is called when another process holds the id: this one must stop serving.
    """

    def __init__(
        self,
        store: MetadataStore,
        registration: BookieRegistration,
        rng: Random,
        *,
        incarnation: bytes | None = None,
        dead_incarnations: tuple[bytes, ...] = (),
        on_lost: Callable[[NameHeldError], None] | None = None,
    ) -> None:
        self._written = registration
        self._written_s = 0.0
        self._rewrite: asyncio.TimerHandle | None = None
        self._keeper = EphemeralKeeper(
            store,
            bookie_path(registration.bookie_id),
            REGISTRATION_CODEC.pack("a registration", registration),
            rng,
            incarnation=incarnation,
            dead_incarnations=dead_incarnations,
            on_lost=on_lost,
        )

    async def start(self, *, held_wait_s: float = HELD_WAIT_S) -> None:
        """Register. Raises NameHeldError if another live process still holds the id after
        `held_wait_s`.
        """
        await self._keeper.start(held_wait_s=held_wait_s)
        self._written_s = asyncio.get_running_loop().time()

    def update(self, registration: BookieRegistration) -> None:
        """Write a change, now or when it is due; a later update replaces an earlier one."""
        assert registration.bookie_id == self._written.bookie_id, "an id is for life"
        loop = asyncio.get_running_loop()
        if self._rewrite is not None:
            self._rewrite.cancel()
        due_s = rewrite_due_s(self._written, registration, loop.time() - self._written_s)
        if due_s == 0.0:
            self._write(registration)
        elif due_s is not None:
            self._rewrite = loop.call_later(due_s, self._write, registration)

    def want(self, *, registered: bool) -> None:
        """Keep the registration, or remove it until it is wanted again."""
        self._keeper.want(held=registered)

    async def aclose(self) -> None:
        """Remove the registration."""
        if self._rewrite is not None:
            self._rewrite.cancel()
        await self._keeper.aclose()

    def _write(self, registration: BookieRegistration) -> None:
        self._written = registration
        self._written_s = asyncio.get_running_loop().time()
        self._keeper.set_content(REGISTRATION_CODEC.pack("a registration", registration))


class ClientRegistration:
    """Registration that shows that one client is alive: while its node exists, no repair fences its
    ledgers (rule 9.2).
    """

    def __init__(self, store: MetadataStore, rng: Random, *, build: str = "") -> None:
        self.client_id = ClientId(f"client-{rng.randbytes(CLIENT_ID_BYTES).hex()}")
        self._keeper = EphemeralKeeper(store, client_path(self.client_id), build.encode(), rng)

    async def start(self) -> None:
        """Register. Raises StoreUnavailableError when the store does not answer."""
        await self._keeper.start()

    async def aclose(self) -> None:
        """Remove the registration."""
        await self._keeper.aclose()
