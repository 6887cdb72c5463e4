"""Comparison of one CLOSED ledger with what its members say that they hold.

Leaves which ledgers are compared to `quire.repair.missing.missing_copies`, and copying to
`quire.repair.range_repair`.

Invariants: an entry is missing only if a bookie listed everything around it, and the metadata did
not change meanwhile; no answer, and every other answer, is unknown. Memory is bounded by one answer
of a bookie, and by the ranges that the caller wants.

Source: protocol rule 9.16.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.errors import NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError
from ledger_client.reading.replica_reading import ReplicaReading
from metadata.ids import BookieId, LedgerId, Version
from metadata.ledgers.copies import bookies_with_entries, ranges_on
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from quire.repair.bad_entries import lacking
from quire.repair.ledger_access import ANSWER_S, read_master_key


@dataclass(slots=True)
class Comparison:
    """What the members of a ledger lack."""

    missing: dict[BookieId, tuple[Range, ...]] = field(default_factory=dict)
    """Missing entries by bookie, the first ones of each, in their order."""
    unknown: dict[BookieId, str] = field(default_factory=dict)
    """Members that may lack entries, each with the reason why that is not known."""
    silent: tuple[BookieId, ...] = ()
    """Those of them that were asked, and did not answer."""
    version: Version | None = None
    """Version of the metadata that was compared; None if it is not one."""
    has_changed: bool = False
    """Whether the metadata changed meanwhile: then nothing is known, and nothing is missing."""


async def compare(
    ledger_id: LedgerId,
    ledgers: LedgerStore,
    pool: BookiePool,
    may_ask: Callable[[BookieId], bool],
    ranges_max: int,
) -> Comparison:
    """Compare a ledger; find at most `ranges_max` ranges of each bookie. Bookies that may not be
    asked are unknown. Raises NodeNotFoundError and other errors of MetadataError.
    """
    ledger, version = await ledgers.get(ledger_id, fresh=True)
    found = Comparison(version=version)
    asked: list[BookieId] = []
    if ledger.state is not LedgerState.CLOSED:
        return found
    for bookie_id in bookies_with_entries(ledger):
        if may_ask(bookie_id):
            asked.append(bookie_id)
        else:
            found.unknown[bookie_id] = "it was not asked"
    if not asked:
        return found
    try:
        await _ask(ledger, pool, asked, ranges_max, found)
    except (NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError) as error:
        found.unknown |= dict.fromkeys(asked, error.message)
        found.silent = tuple(asked) if isinstance(error, QuorumTimeoutError) else ()
        return found
    if found.missing and (await ledgers.get(ledger_id, fresh=True))[1] != version:
        return Comparison(has_changed=True)
    return found


async def _ask(
    ledger: LedgerMetadata,
    pool: BookiePool,
    asked: list[BookieId],
    ranges_max: int,
    found: Comparison,
) -> None:
    key = await read_master_key(pool, ledger.ledger_id, asked, timeout_s=ANSWER_S)
    if key is None:  # none of them stores an entry
        for bookie_id in asked:
            found.missing[bookie_id] = _first(ledger, bookie_id, ranges_max)
        return
    keys = LedgerKeys.with_master_key(ledger, key)
    pool.attach(ledger.ledger_id, key)
    try:
        for bookie_id in asked:
            try:
                missing = await _missing_at(
                    ReplicaReading(pool, bookie_id, keys), ledger, ranges_max
                )
            except BookieCallError as error:
                found.unknown[bookie_id] = str(error)
                if error.status is None:
                    found.silent = (*found.silent, bookie_id)
            else:
                if missing:
                    found.missing[bookie_id] = missing
    finally:
        pool.detach(ledger.ledger_id)


async def _missing_at(
    replica: ReplicaReading, ledger: LedgerMetadata, ranges_max: int
) -> tuple[Range, ...]:
    missing: list[Range] = []
    wanted = ranges_on(ledger, replica.bookie_id)
    async with aclosing(replica.stored_ranges()) as held, aclosing(lacking(wanted, held)) as parts:
        async for each in parts:
            missing.append(each)
            if len(missing) == ranges_max:
                break
    return tuple(missing)


def _first(ledger: LedgerMetadata, bookie_id: BookieId, ranges_max: int) -> tuple[Range, ...]:
    return tuple(islice(ranges_on(ledger, bookie_id), ranges_max))
