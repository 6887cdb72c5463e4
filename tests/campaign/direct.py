"""Requests to single bookies, without the client's protocols: their ranges, and the bytes of
entries.

Leaves the meaning of the answers to the callers.

Invariants: these reads fence and write nothing. Bytes count as valid only if the batch and each
entry pass the writer's digests.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import ListEntries, ReadEntries, Status
from ledger_client import ClientConfig
from ledger_client.bookies.pool import BookiePool
from ledger_client.client_services import DirectoryAddresses
from ledger_client.cluster_access import Cluster, open_cluster
from ledger_client.digest import LedgerKeys, verify
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata

CALL_TIMEOUT_S: Final = 20.0
READ_BYTES: Final = 4 * 1024 * 1024
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Direct:
    """Metadata of a cluster, and a connection to each bookie."""

    cluster: Cluster
    pool: BookiePool

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read a ledger's current metadata."""
        found, _ = await self.cluster.ledgers.get(LedgerId(ledger_id), fresh=True)
        return found


@asynccontextmanager
async def open_direct(uri: str) -> AsyncIterator[Direct]:
    """Connect; disconnect at the end of the block."""
    async with open_cluster(uri) as cluster:
        addresses = DirectoryAddresses(cluster.directory, cluster.store)
        pool = BookiePool(addresses, config=ClientConfig(), rng=Random(os.urandom(16)))
        try:
            yield Direct(cluster, pool)
        finally:
            await pool.aclose()


@dataclass(slots=True)
class HeldCopies:
    """One bookie's answers for the requested ranges."""

    valid: list[BatchView] = field(default_factory=list)
    damaged: list[Range] = field(default_factory=list)
    """A batch that fails its digests, or UNKNOWN."""
    missing: list[Range] = field(default_factory=list)
    """Entries that the bookie denies."""


async def read_copies(
    direct: Direct, keys: LedgerKeys, bookie_id: BookieId, wanted: Sequence[Range]
) -> HeldCopies:
    """Read every entry of these ranges from one bookie. Raises BookieCallError."""
    held = HeldCopies()
    direct.pool.attach(keys.ledger_id, keys.master_key)
    try:
        listed = await list_held(direct.pool, keys.ledger_id, bookie_id)
        for first, last in wanted:
            inside = [(max(a, first), min(b, last)) for a, b in listed if a <= last and b >= first]
            at = first
            for low, high in inside:
                if at < low:
                    held.missing.append((at, low - 1))
                await _read(direct.pool, keys, bookie_id, (low, high), held)
                at = high + 1
            if at <= last:
                held.missing.append((at, last))
    finally:
        direct.pool.detach(keys.ledger_id)
    return held


async def list_held(pool: BookiePool, ledger_id: LedgerId, bookie_id: BookieId) -> list[Range]:
    """Request the ranges of a ledger that a bookie holds; the key must be attached."""
    listed: list[Range] = []
    at = 0
    while True:
        request = ListEntries(ledger_id, EntryId(at))
        answer = await pool.list_entries(bookie_id, request, timeout_s=CALL_TIMEOUT_S)
        if answer.status in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY):
            return listed
        assert answer.status is Status.OK, f"{bookie_id} answered {answer.status.name}"
        listed += answer.ranges
        if answer.complete or not answer.ranges:
            return listed
        at = answer.ranges[-1][1] + 1


async def _read(
    pool: BookiePool, keys: LedgerKeys, bookie_id: BookieId, wanted: Range, held: HeldCopies
) -> None:
    at, last = wanted
    while at <= last:
        request = ReadEntries(keys.ledger_id, EntryId(at), EntryId(last), READ_BYTES, fence=False)
        answer = await pool.read_entries(bookie_id, request, timeout_s=CALL_TIMEOUT_S)
        before = at
        for batch in answer.batches:
            header = batch.header
            if not header.first_entry_id <= at <= header.last_entry_id:
                break
            try:
                verify(batch, keys)
                batch.verify_digests(keys.seed)
            except BatchError:
                held.damaged.append((at, min(last, header.last_entry_id)))
            else:
                held.valid.append(batch)
            at = header.last_entry_id + 1
        if at == before:
            is_missing = answer.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
            (held.missing if is_missing else held.damaged).append((at, at))
            at += 1


def wanted_ranges(ledger: LedgerMetadata, last_entry_id: int) -> dict[BookieId, list[Range]]:
    """Return which entries each bookie of each write set must hold (protocol rule 3.1).

    This is a second implementation of the rule, so that the product does not check itself.
    """
    wanted: dict[BookieId, list[Range]] = {}
    bounds = [fragment.first_entry_id for fragment in ledger.fragments] + [last_entry_id + 1]
    for fragment, first, after in zip(ledger.fragments, bounds, bounds[1:], strict=False):
        for stripe_first, stripe_last, bookies in _stripes(ledger, fragment, first, after - 1):
            for bookie_id in bookies:
                ranges = wanted.setdefault(bookie_id, [])
                if ranges and ranges[-1][1] + 1 == stripe_first:
                    ranges[-1] = (ranges[-1][0], stripe_last)
                else:
                    ranges.append((stripe_first, stripe_last))
    return wanted


def _stripes(
    ledger: LedgerMetadata, fragment: Fragment, first: int, last: int
) -> list[tuple[int, int, list[BookieId]]]:
    size, quorum = ledger.quorum.stripe_entries, ledger.quorum
    stripes = []
    for stripe in range(first // size, last // size + 1) if first <= last else ():
        low, high = max(first, stripe * size), min(last, (stripe + 1) * size - 1)
        positions = [(stripe + i) % quorum.ensemble_size for i in range(quorum.write_quorum)]
        if quorum.is_in_sync:
            positions = list(range(len(fragment.ensemble)))  # all members of the fragment (11.1)
        stripes.append((low, high, [fragment.ensemble[position] for position in positions]))
    return stripes
