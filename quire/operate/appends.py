"""How the command line writes ledgers: groups of entries without waiting for each, and claims of
created ledgers: one process creates a ledger (`quire ledger create`), another fills it (`append
ID`).

A ledger has one writer for life. A created ledger without a writer has a mark in its custom
metadata. The first client that removes the mark becomes the writer.

Invariants: a client that set a mark never writes an entry; the mark is removed by compare-and-set,
so at most one client removes it; a ledger without the mark cannot be claimed.

Source: protocol rules 1.2-1.5 and 9.15.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, Self

from ledger_client import ClientConfig, LedgerClosedError, LedgerInfo, LedgerWriter
from ledger_client.client_services import ClientServices, ClientSettings
from ledger_client.cluster_access import identity_of, wall_clock_ms
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.keys import Encryption, sealer_to_write
from ledger_client.encryption.ledger_cipher import PayloadSealer
from ledger_client.ledger_calls import LedgerCalls, NewLedger
from ledger_client.metadata_failures import metadata_call
from metadata.cancelling import cancel_and_wait
from metadata.errors import VersionConflictError
from metadata.ids import UPDATE_TOKEN_BYTES, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerMetadata, LedgerState
from metadata.registry.cluster import open_cluster_store

ONE_LEDGER: Final = ClientConfig(ledger_ids_at_once=1)
"""Configuration of a client that creates one ledger: it leaves no ids unused."""
CLAIMS_MAX: Final = 5
"""Maximum number of attempts to claim a ledger whose metadata others change."""


async def create_unclaimed(address: str, wanted: NewLedger) -> LedgerInfo:
    """Create a ledger for the first `claimed_writer` to fill. Raises LedgerError."""
    async with _services(address) as services:
        return await create_unclaimed_by(services, wanted)


async def create_unclaimed_by(services: ClientServices, wanted: NewLedger) -> LedgerInfo:
    """Create a ledger for the first `writer_claimed_by` to fill, with the parts of a running
    client. Raises LedgerError.
    """
    marked = replace(wanted, custom={**wanted.custom, UNCLAIMED_NAME: "1"})
    created, _, _ = await LedgerCalls(services).create(marked, services.config.call_timeout_s)
    return LedgerInfo.of(created)


@asynccontextmanager
async def claimed_writer(
    address: str, ledger_id: LedgerId, password: bytes, encryption: Encryption | None = None
) -> AsyncIterator[LedgerWriter]:
    """Become the writer of a created ledger; close the ledger at the end of the block.

    Raises LedgerNotFoundError; raises LedgerClosedError, with the reason, for a ledger that has or
    had a writer; raises EncryptedLedgerError, PlainLedgerError and EncryptionKeyError before the
    ledger is claimed.
    """
    async with (
        _services(address) as services,
        writer_claimed_by(services, ledger_id, password, encryption) as writer,
    ):
        yield writer


@asynccontextmanager
async def writer_claimed_by(
    services: ClientServices,
    ledger_id: LedgerId,
    password: bytes,
    encryption: Encryption | None = None,
) -> AsyncIterator[LedgerWriter]:
    """Do the same as `claimed_writer`, with the parts of a running client."""
    limit = services.config.call_timeout_s
    stored, version, keys = await LedgerCalls(services).find(ledger_id, password, limit)
    key = None
    if encryption is not None and stored.encryption is not None:
        key = encryption.key(stored.encryption.key_id, ledger_id)
    elif encryption is not None:
        key = encryption.current_key()
    sealer = sealer_to_write(stored, key)
    metadata, version = await _claim(services, stored, version)
    async with _writer(services, metadata, version, keys, sealer) as writer:
        yield writer


async def _claim(
    services: ClientServices, stored: LedgerMetadata, version: Version
) -> tuple[LedgerMetadata, Version]:
    """Remove the mark. Repair may replace a member of the ledger meanwhile (rule 9.15)."""
    ledger_id = stored.ledger_id
    limit, address = services.config.call_timeout_s, services.store.address
    async with metadata_call("claiming a ledger", address, limit, ledger_id=ledger_id):
        for _ in range(CLAIMS_MAX):
            _require_unclaimed(stored)
            custom = {name: text for name, text in stored.custom.items() if name != UNCLAIMED_NAME}
            token = UpdateToken(services.rng.randbytes(UPDATE_TOKEN_BYTES))
            writer = services.registration.client_id
            claimed = replace(stored, custom=custom, writer=writer, update_token=token)
            try:
                return claimed, await services.ledgers.compare_and_set(claimed, version)
            except VersionConflictError:
                stored, version = await services.ledgers.get(ledger_id, fresh=True)
        _require_unclaimed(stored)
    text = f"its metadata changed {CLAIMS_MAX} times while it was being claimed: try again"
    raise LedgerClosedError(text, ledger_id=ledger_id)


def _require_unclaimed(metadata: LedgerMetadata) -> None:
    if metadata.is_unclaimed:
        return
    ledger_id = metadata.ledger_id
    advice = "append to a new ledger: leave the id out"
    if metadata.state is LedgerState.OPEN:
        why = (
            f"another client, {metadata.writer}, is or was its writer, and a ledger has one for "
            f"life; {advice}, or end this one: quire ledger recover {ledger_id}"
        )
    else:
        last = metadata.last_entry_id
        ended = f"it is {metadata.state}" + ("" if last is None else f", its last entry is {last}")
        why = f"{ended}, and it accepts no more appends; {advice}"
    raise LedgerClosedError(why, ledger_id=ledger_id)


def _writer(
    services: ClientServices,
    metadata: LedgerMetadata,
    version: Version,
    keys: LedgerKeys,
    sealer: PayloadSealer | None,
) -> LedgerWriter:
    return LedgerWriter(
        metadata=metadata,
        version=version,
        keys=keys,
        services=services.for_writers,
        watchdog=services.watchdog,
        observe=lambda _action: None,
        on_closed=lambda _ledger_id: None,
        sealer=sealer,
    )


@asynccontextmanager
async def _services(address: str) -> AsyncIterator[ClientServices]:
    """Start the parts of a client; end them after the block."""
    rng, config, identity = Random(os.urandom(16)), ONE_LEDGER, identity_of(address)
    settings = ClientSettings(
        open_store=partial(open_cluster_store, address, rng=rng),
        address=address,
        config=config,
        rng=rng,
        wall_clock_ms=wall_clock_ms,
        ssl=identity.contexts,
        sasl=identity.sasl,
    )
    async with metadata_call("connecting", address, config.metadata_timeout_s):
        services = ClientServices(settings, await settings.open_store())
        await services.start()
    try:
        yield services
    finally:
        await services.aclose()


GROUPS_PENDING_MAX: Final = 32


class PipelinedAppend:
    """Groups on their way into one ledger; the end of the block waits for all of them.

    Entries get ids in the order in which their groups were added; at most GROUPS_PENDING_MAX groups
    are unconfirmed; the first failure is raised, and the groups added after it are abandoned.
    """

    def __init__(self, ledger: LedgerWriter, on_confirmed: Callable[[int], None]) -> None:
        self._ledger = ledger
        self._on_confirmed = on_confirmed
        self._pending: deque[asyncio.Task[range]] = deque()

    async def add(self, entries: Sequence[bytes]) -> None:
        """Append a group; wait while too many are pending."""
        self._pending.append(asyncio.create_task(self._ledger.append_many(entries)))
        await asyncio.sleep(0)  # lets the writer send it and receive responses
        while len(self._pending) > GROUPS_PENDING_MAX or self._pending[0].done():
            await self._take_first()
            if not self._pending:
                return

    async def _take_first(self) -> None:
        self._on_confirmed(len(await self._pending.popleft()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            while error is None and self._pending:
                await self._take_first()
        finally:
            await cancel_and_wait(*self._pending)
