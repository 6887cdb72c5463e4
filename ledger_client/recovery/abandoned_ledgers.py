"""Open ledgers whose writers are gone, with entries that no reader sees.

Leaves recovering them to `abandoned_recovery`. Readers see an open ledger up to its LAC. The last
entries of a writer that was killed are stored and may be acknowledged, but their LAC was not sent.

Invariants: nothing is fenced or changed; a ledger whose writer is registered is not in the result;
bookies of at most ASKED_MAX ledgers are asked in one call.

Source: protocol rules 8.1, 8.4 and 9.2.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from bookie.wire.messages import LacReply, ReadLac, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.client_services import ClientServices
from ledger_client.digest import LedgerKeys
from ledger_client.metadata_failures import metadata_call
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, ClientId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.paths import client_path
from metadata.store.interface import find

ItemT = TypeVar("ItemT")
ASKED_MAX: Final = 20
"""Maximum number of ledgers whose bookies are asked for their last entries in one call."""
ASK_S: Final = 2.0
"""Maximum time for a bookie's answer, in seconds."""
READS_AT_ONCE: Final = 64
"""Maximum number of ledgers whose metadata is read at the same time."""


@dataclass(frozen=True, slots=True)
class AbandonedLedger:
    """A ledger without a writer and without an end, of which bookies hold more than readers see."""

    ledger_id: int
    last_confirmed: int
    """The last entry that readers see."""
    last_stored: int
    """The last entry that a bookie says it holds. Its append may have failed."""

    @property
    def hidden_count(self) -> int:
        """Number of entries that readers do not see; not all of them must be acknowledged."""
        return self.last_stored - self.last_confirmed


@dataclass(frozen=True, slots=True)
class AbandonedLedgers:
    """Result of a search."""

    ledgers: tuple[AbandonedLedger, ...]
    unasked_count: int
    """Number of further open ledgers without a writer, whose bookies were not asked."""


@dataclass(frozen=True, slots=True)
class WrittenLedger:
    """A ledger that is not CLOSED, and whether the node of its writer's client exists."""

    metadata: LedgerMetadata
    is_registered: bool

    @property
    def is_abandoned(self) -> bool:
        """Whether no writer appends to it now. A ledger in recovery is fenced, and the writer of an
        unclaimed one is still to come.
        """
        if self.metadata.is_unclaimed:
            return False
        return self.metadata.state is LedgerState.IN_RECOVERY or not self.is_registered


async def find_abandoned(
    services: ClientServices, ledger_ids: Sequence[LedgerId], password: bytes, timeout_s: float
) -> AbandonedLedgers:
    """Search ledgers for abandoned ones, in the given order; `timeout_s` limits each step. Raises
    MetadataUnavailableError and the other errors of the metadata service.
    """
    unclosed = await written_ledgers(services, ledger_ids, timeout_s, fresh=False)
    gone = [each.metadata.ledger_id for each in unclosed if each.is_abandoned]
    # Once more, from the newest metadata: a writer may close its ledger, and end, in between.
    asked = await written_ledgers(services, gone[:ASKED_MAX], timeout_s, fresh=True)
    ends = await asyncio.gather(
        *[_ends(services, each.metadata, password) for each in asked if each.is_abandoned]
    )
    hidden = tuple(each for each in ends if each.hidden_count > 0)
    return AbandonedLedgers(hidden, max(0, len(gone) - ASKED_MAX))


async def written_ledgers(
    services: ClientServices, ledger_ids: Sequence[LedgerId], timeout_s: float, *, fresh: bool
) -> list[WrittenLedger]:
    """Return those ledgers that exist and are not CLOSED, with a read of each writer's node after
    that of the ledger; `fresh` as for `MetadataStore.get`, and `timeout_s` for each step.
    """
    store = services.store
    found: list[WrittenLedger] = []
    for chunk in chunks(ledger_ids, READS_AT_ONCE):
        async with metadata_call("looking for the writers of ledgers", store.address, timeout_s):
            read = await asyncio.gather(*[_unclosed(services, each, fresh=fresh) for each in chunk])
            ledgers = [each for each in read if each is not None]
            writers = list(dict.fromkeys(each.writer for each in ledgers))
            nodes = await asyncio.gather(
                *[find(store, client_path(each), fresh=fresh) for each in writers]
            )
        there: dict[ClientId, bool] = {
            writer: node is not None for writer, node in zip(writers, nodes, strict=True)
        }
        found += [WrittenLedger(each, there[each.writer]) for each in ledgers]
    return found


def chunks(items: Sequence[ItemT], most: int) -> list[Sequence[ItemT]]:
    """Return items in parts of at most `most`."""
    return [items[start : start + most] for start in range(0, len(items), most)]


async def _unclosed(
    services: ClientServices, ledger_id: LedgerId, *, fresh: bool
) -> LedgerMetadata | None:
    try:
        metadata, _ = await services.ledgers.get(ledger_id, fresh=fresh)
    except NodeNotFoundError:
        return None
    return None if metadata.state is LedgerState.CLOSED else metadata


async def _ends(
    services: ClientServices, metadata: LedgerMetadata, password: bytes
) -> AbandonedLedger:
    """Return the last confirmed and the last stored entry, as the bookies that answer know them."""
    pool, ledger_id = services.pool, metadata.ledger_id
    fragment = metadata.last_fragment
    pool.attach(ledger_id, LedgerKeys.of(metadata, password).master_key)
    try:
        asked = [_ask(services, bookie_id, ledger_id) for bookie_id in fragment.ensemble]
        replies = [reply for reply in await asyncio.gather(*asked) if reply is not None]
    finally:
        pool.detach(ledger_id)
    confirmed = fragment.first_entry_id - 1
    return AbandonedLedger(
        ledger_id,
        max((confirmed, *(each.lac for each in replies))),
        max((confirmed, *(each.highest_entry_id for each in replies))),
    )


async def _ask(
    services: ClientServices, bookie_id: BookieId, ledger_id: LedgerId
) -> LacReply | None:
    timeout_s = min(ASK_S, services.config.read_timeout_s)
    request = ReadLac(ledger_id, fence=False)
    try:
        reply = await services.pool.read_lac(bookie_id, request, timeout_s=timeout_s)
    except BookieCallError:
        return None
    return reply if reply.status is Status.OK else None
