"""Ledgers that bookies hold, whether or not the metadata knows them.

Leaves what a difference means to `quire metadata compare`, and making ledgers of what is not known
to `quire.repair.rescue`.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.deletion_feed import DeletionFeed
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import DELETION_SHARDS
from metadata.registry.registration import BookieRegistration
from quire.identity.client_file import ClientFile
from quire.operate.admin_api import AdminApiError, AdminNotFoundError, get_json
from quire.operate.fields import Json

PAGE_LEDGERS: Final = 10_000


async def find_ledger(
    cluster: Cluster, ledger_id: LedgerId
) -> LedgerMetadata | MetadataFormatError | None:
    """Return a ledger's metadata by a fresh read, or the error of a record that cannot be read;
    None if the metadata does not know the ledger. Raises MetadataError.
    """
    try:
        return (await cluster.ledgers.get(ledger_id, fresh=True))[0]
    except NodeNotFoundError:
        return None
    except MetadataFormatError as error:
        return error


async def held_by(
    registration: BookieRegistration, identity: ClientFile
) -> AsyncGenerator[LedgerId, None]:
    """Yield the ledgers that a bookie holds, ascending. Raises AdminApiError, SecurityError."""
    state = await get_json(f"{registration.admin_url}/api/v1/state", identity)
    answering = state.get("id") if isinstance(state, dict) else None
    if answering != registration.bookie_id:
        raise AdminApiError(
            f"bookie {answering} answers at {registration.admin_url}: run this on the bookie's "
            "machine, or give it an admin_host that can be reached from here"
        )
    after = -1
    while True:
        path = f"/api/v1/ledgers?after={after}&limit={PAGE_LEDGERS}"
        answer = await get_json(f"{registration.admin_url}{path}", identity)
        page = answer.get("ledgers") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(page, list):
            raise AdminApiError("its answer has no ledgers")
        for number in page:
            yield LedgerId(int(str(number)))
        if "next_after" not in answer:
            return
        after = int(str(answer["next_after"]))


@dataclass(frozen=True, slots=True)
class Holding:
    """Entries that a bookie holds of a ledger: as many of them as its first answer lists."""

    count: int
    last_entry_id: int

    @staticmethod
    def of(ranges: Sequence[tuple[int, int]]) -> "Holding | None":
        """Return the entries of some ranges; None if there are none."""
        if not ranges:
            return None
        return Holding(sum(last - first + 1 for first, last in ranges), ranges[-1][1])


async def holding_of(
    registration: BookieRegistration, ledger_id: LedgerId, identity: ClientFile
) -> Holding | None:
    """Return the entries that a bookie holds of a ledger; None if it holds none. Raises
    AdminApiError, SecurityError.
    """
    path = f"/api/v1/ledgers/{ledger_id}/entries"
    try:
        answer: Json = await get_json(f"{registration.admin_url}{path}", identity)
    except AdminNotFoundError:
        return None
    ranges = answer.get("ranges") if isinstance(answer, dict) else None
    if not isinstance(ranges, list):
        raise AdminApiError("its answer has no ranges")
    return Holding.of([(int(first), int(last)) for first, last in ranges])


async def deleted_ledgers(cluster: Cluster) -> frozenset[LedgerId]:
    """Return the ledgers that were deleted and may not be removed from every bookie yet. Raises
    MetadataError.
    """
    feed = DeletionFeed(cluster.store)
    deleted: list[LedgerId] = []
    for shard in range(DELETION_SHARDS):
        deleted += await feed.entries(shard)
    return frozenset(deleted)
