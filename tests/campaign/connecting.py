"""Client of a campaign's process that starts while the metadata service is away.

Leaves using the client to `writer`, `tailer` and `contender`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from ledger_client import ClientEvent, LedgerClient, MetadataUnavailableError

TRIES_MAX: Final = 6
RETRY_S: Final = 0.5


@asynccontextmanager
async def connected_client(
    uri: str,
    on_failure: Callable[[MetadataUnavailableError], None],
    on_event: Callable[[ClientEvent], None] = lambda _: None,
) -> AsyncIterator[LedgerClient]:
    """Connect, again and again as a supervisor would; report each failure."""
    client = LedgerClient(uri, on_event=on_event)
    try:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                await client.__aenter__()
            except MetadataUnavailableError as error:
                on_failure(error)
                if not tries_left:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                break
        yield client
    finally:
        await client.aclose()
