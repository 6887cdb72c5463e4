"""Key that proves the role of repair to bookies.

Leaves presenting it to `ledger_client.bookies.pool` (credentials), and checking it to
`bookie.server.access`.

Format: the value of `/repair/key` is the key: 32 random bytes.

Invariant: once created, the key does not change.

Source: metadata design, "Versions and security".
"""

import asyncio
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import MetadataFormatError, NodeExistsError, OutcomeUnknownError
from metadata.paths import REPAIR_KEY
from metadata.store.interface import MetadataStore, find

REPAIR_KEY_BYTES: Final = 32


async def read_repair_key(store: MetadataStore) -> bytes | None:
    """Return the key, by a fresh read; None before its first use. Raises MetadataError."""
    stored = await find(store, REPAIR_KEY)
    if stored is None:
        return None
    if len(stored.value) != REPAIR_KEY_BYTES:
        raise MetadataFormatError(
            REPAIR_KEY, f"it has {len(stored.value)} bytes instead of {REPAIR_KEY_BYTES}"
        )
    return stored.value


async def read_or_create_repair_key(store: MetadataStore, rng: Random) -> bytes:
    """Return the key; create it if there is none. Raises MetadataError.

    `rng` makes a secret: outside of tests it is a `random.SystemRandom`.
    """
    backoff = Backoff(rng)
    while True:
        known = await read_repair_key(store)
        if known is not None:
            return known
        try:
            await store.create(REPAIR_KEY, rng.randbytes(REPAIR_KEY_BYTES))
        except (NodeExistsError, OutcomeUnknownError):
            await asyncio.sleep(backoff.next_s())  # the stored key decides
