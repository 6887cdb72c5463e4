"""`quire ledger rescue`: makes ledgers again of what bookies hold and the metadata does not know.

Source: docs/runbooks.md, "ZooKeeper lost and restored".
"""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import (
    Cluster,
    identity_of,
    open_cluster,
    wall_clock_ms,
)
from ledger_client.digest import creation_token_in
from ledger_client.errors import DecryptionError, LedgerError
from ledger_client.reading.replica_reading import read_stored_entry
from metadata.errors import InvalidTransitionError, NodeExistsError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.entry_ranges import describe_ranges
from metadata.ledgers.payload_encryption import PayloadEncryption
from metadata.repair.repair_key import read_repair_key
from quire.cli.command_line import metadata_address
from quire.cli.ledger import encryption_of, password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import CommandError, ExitCode, NeedsConsentError
from quire.operate.admin_api import AdminApiError
from quire.operate.fields import Json
from quire.operate.held_ledgers import deleted_ledgers, find_ledger, held_by
from quire.repair.losses import LossParts
from quire.repair.rescue import FoundCopies, RescueSurvey, rescued_ledger

COLUMNS: Final = ("ledger", "bookies", "entries", "last_entry_id", "copies", "lost", "what")
EVEN_IF: Final = "--even-if-incomplete"


class IncompleteError(CommandError):
    """A bookie that may hold unknown ledgers, or more entries of them, was not asked."""

    code = ExitCode.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Unknown:
    """Ledgers that bookies hold and the metadata does not know."""

    holders: Mapping[LedgerId, list[BookieId]]
    not_asked: Mapping[BookieId, str]
    """Bookies that were not asked, or are in limbo, with the reason."""


async def rescue(arguments: argparse.Namespace, output: Output) -> int:
    """Read all copies of unknown ledgers, and with --yes store their metadata; status 1 if a ledger
    was left.
    """
    async with open_cluster(metadata_address(arguments)) as cluster:
        unknown = await _search(cluster, {LedgerId(number) for number in arguments.ledgers}, output)
        if unknown.not_asked and not arguments.even_if_incomplete:
            reasons = "; ".join(
                f"{bookie_id}: {why}" for bookie_id, why in unknown.not_asked.items()
            )
            raise IncompleteError(
                f"not every bookie could be asked, and one may hold what others lack ({reasons})",
                try_next=f"bring them back; if they never return, add {EVEN_IF}",
            )
        left = 0
        with Progress(output, "read", "entries") as progress:
            async with open_repair_pool(cluster) as pool:
                work = _Rescue(arguments, cluster, RescueSurvey(pool, progress.advance), pool)
                with output.listing(*COLUMNS) as listing:
                    for ledger_id in sorted(unknown.holders):
                        row, is_left = await work.run(ledger_id, unknown)
                        left += is_left
                        listing.add(row)
    if unknown.holders and not arguments.yes:
        raise NeedsConsentError(
            f"{len(unknown.holders)} ledgers would be fenced and stored as above; nothing was "
            "changed",
            try_next="quire ledger rescue --yes",
        )
    return ExitCode.FINDINGS if left else ExitCode.DONE


@asynccontextmanager
async def open_repair_pool(cluster: Cluster) -> AsyncIterator[BookiePool]:
    """Open connections to single bookies with the key of repair, until the block's end. Raises
    MetadataError, SecurityError.
    """
    pool = cluster.open_pool(await read_repair_key(cluster.store) or b"")
    try:
        yield pool
    finally:
        await pool.aclose()


async def _search(cluster: Cluster, wanted: set[LedgerId], output: Output) -> Unknown:
    """Ask every bookie for what it holds. With `wanted`, only these ledgers are looked for."""
    identity, deleted = identity_of(cluster.address), await deleted_ledgers(cluster)
    holders: dict[LedgerId, list[BookieId]] = {}
    up = dict(cluster.directory.bookies)
    away = [
        bookie_id for bookie_id in await cluster.cookies.list_bookie_ids() if bookie_id not in up
    ]
    gone = await LossParts(cluster.store, cluster.ledgers, cluster.rng, wall_clock_ms).gone_bookies(
        away
    )
    not_asked = dict.fromkeys(
        (bookie_id for bookie_id in away if bookie_id not in gone), "it is not up"
    )
    with Progress(output, "compared", "ledgers") as progress:
        for bookie_id, registration in up.items():
            try:
                async with aclosing(held_by(registration, identity)) as held:
                    async for ledger_id in held:
                        progress.advance(1)
                        if (wanted and ledger_id not in wanted) or ledger_id in deleted:
                            continue
                        if ledger_id in holders or await find_ledger(cluster, ledger_id) is None:
                            holders.setdefault(ledger_id, []).append(bookie_id)
            except AdminApiError as error:
                not_asked[bookie_id] = str(error)
            if registration.is_in_limbo:
                not_asked[bookie_id] = "it is in limbo"
    return Unknown(holders, not_asked)


@dataclass(frozen=True, slots=True)
class _Rescue:
    """The work on each ledger."""

    arguments: argparse.Namespace
    cluster: Cluster
    survey: RescueSurvey
    pool: BookiePool

    async def run(self, ledger_id: LedgerId, unknown: Unknown) -> tuple[dict[str, Json], bool]:
        """Read one ledger, and store it if that is wanted; return its row, and whether it is
        left.
        """
        holders, password = unknown.holders[ledger_id], password_of(self.arguments)
        row: dict[str, Json] = {"ledger": ledger_id, "bookies": list(holders)}
        try:
            replicas = await self.survey.read(
                ledger_id, holders, password, fence=self.arguments.yes
            )
        except LedgerError as error:
            return row | {"what": f"left: {error}"}, True
        if replicas is None:
            return row | {"entries": 0, "what": "holds no entry: nothing to rescue"}, False
        replicas.all_answered = not unknown.not_asked
        row |= {
            "entries": sum(last - first + 1 for first, last in replicas.present),
            "last_entry_id": replicas.last_entry_id,
            "copies": replicas.fewest_copies,
            "lost": describe_ranges(replicas.lost) or None,
            "failures": [f"{bookie_id}: {why}" for bookie_id, why in replicas.failures.items()],
        }
        what, is_left = await self._store(replicas)
        return row | {"what": what}, is_left

    async def _store(self, replicas: FoundCopies) -> tuple[str, bool]:
        """Return what became of a ledger, and whether it is left."""
        if (replicas.lost or not replicas.is_certain) and not self.arguments.even_if_incomplete:
            return f"left: entries are missing; {EVEN_IF} records them as lost", True
        parts = LossParts(self.cluster.store, self.cluster.ledgers, self.cluster.rng, wall_clock_ms)
        try:
            encryption = await self._encryption(replicas)
            ledger = rescued_ledger(
                replicas, now_ms=wall_clock_ms(), token=parts.token(), encryption=encryption
            )
            if self.arguments.yes:
                await self.cluster.ledgers.create(ledger)
        except DecryptionError:
            return "left: the current key of the file does not decrypt it", True
        except NodeExistsError:
            return "left: its id is in use, or was given to a ledger that is deleted", True
        except InvalidTransitionError as error:
            return f"left: {error.why}", True
        unchecked = ", its MACs not checked" if replicas.keys.lacks_mac_key else ""
        return ("rescued" if self.arguments.yes else "can be rescued") + unchecked, False

    async def _encryption(self, replicas: FoundCopies) -> PayloadEncryption | None:
        """Return how the payloads are encrypted, if a file of keys was given. Raises
        DecryptionError if its current key does not decrypt the first entry that is left.
        """
        keys = encryption_of(self.arguments)
        if keys is None or not replicas.present:
            return None
        named, ledger_id = keys.current_key(), replicas.keys.ledger_id
        encryption = named.encryption_of(creation_token_in(replicas.keys.master_key))
        first = EntryId(replicas.present[0][0])
        holder = next(b for b, held in replicas.readable.items() if held and held[0][0] == first)
        self.pool.attach(ledger_id, replicas.keys.master_key)
        stored = await read_stored_entry(
            self.pool, holder, replicas.keys, first, has_password=replicas.keys.mac_key is not None
        )
        self.pool.detach(ledger_id)
        named.cipher_of(ledger_id, encryption).decrypt(ledger_id, first, [stored.payload])
        return encryption
