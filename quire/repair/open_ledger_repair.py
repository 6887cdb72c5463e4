"""Repair of a ledger that is not CLOSED: recovery if its writer is gone, other members if it has
none yet.

A ledger whose writer ended before its first entry was stored has no key on any bookie. It is
recovered without a key, and ends empty.

Invariants: a ledger with a live writer is not fenced. No ledger is recovered while a restore of the
metadata is not accepted: its ensemble may be an old one, and a recovery on it may end the ledger
too early. A recovery without a key begins only when each bookie that may be waited for answered
that it knows none, and never for a ledger with confirmed entries. A ledger that is not claimed is
not recovered, because its writer is still to come.

Source: protocol rules 9.2, 9.14, 9.15 and 10.6.
"""

import asyncio
from typing import Final

from ledger_client.bookies.placement import Shortage
from ledger_client.client_services import ClientServices
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    QuorumTimeoutError,
    RecoveryUndecidedError,
    UnauthorizedError,
)
from ledger_client.recovery.missing_writers import MissingWriters, OpenAction
from ledger_client.recovery.recoverer import KeylessBookies, Recoverer, RecoveryBookies
from metadata.errors import MetadataError
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import client_path
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import find
from quire.repair.attempts import (
    Blocked,
    Deleted,
    Outcome,
    Postponed,
    Repaired,
    describe_shortage,
    keys_of,
)
from quire.repair.standing import Standing, Standings

RECOVERY_TIMEOUT_S: Final = 60.0
WITH_PASSWORD: Final = "recover it with its password, `quire ledger recover`"
UNACCEPTED: Final = (
    "the metadata was restored from a dump: compare it (`quire metadata compare`), then run `quire "
    "metadata accept-restore`"
)
WRITER_LIVES: Final = (
    "the client of its writer lives, and a writer replaces the bookie itself; if it has ended with "
    "an error and left the ledger open, run `quire ledger recover`"
)
CLOSED: Final = Postponed("it is closed now: its last fragment is repaired next", again_s=0.0)


class OpenLedgerRepair:
    """Ends ledgers whose writers are gone, one call each, with the services of one client."""

    def __init__(self, services: ClientServices, missing_writers: MissingWriters) -> None:
        self._services = services
        self._missing_writers = missing_writers

    async def end(self, ledger: LedgerMetadata, version: Version, standings: Standings) -> Outcome:
        """Recover a ledger whose writer is gone for certain; give one without a writer other
        members.
        """
        services, ledger_id = self._services, ledger.ledger_id
        try:
            if await is_unaccepted(services.store):
                return Postponed(UNACCEPTED)
            node = await find(services.store, client_path(ledger.writer), fresh=True)
        except MetadataError as error:
            return Postponed(str(error))
        now_s = asyncio.get_running_loop().time()
        action = self._missing_writers.look(ledger, is_registered=node is not None, now_s=now_s)
        match action:
            case OpenAction.MOVE:
                return await self._move(ledger, version, standings)
            case OpenAction.LEAVE:
                return Postponed(WRITER_LIVES)
            case OpenAction.LOOK_AGAIN:
                left_s = self._missing_writers.due_s(ledger_id) - now_s
                why = f"its writer is gone: it is recovered in {left_s:.0f} s, if so still"
                return Postponed(why, left_s)
            case OpenAction.RECOVER:
                return await self._recover(ledger, version, standings)

    async def _move(
        self, ledger: LedgerMetadata, version: Version, standings: Standings
    ) -> Outcome:
        """Replace members of a ledger without a writer. They hold nothing (rule 9.15)."""
        services, fragment = self._services, ledger.last_fragment
        assert fragment.first_entry_id == 0, "it has no writer"
        ensemble = list(fragment.ensemble)
        leaving = [p for p, b in enumerate(ensemble) if standings.of(b) is not Standing.GOOD]
        excluded = dict.fromkeys(standings.by_bookie, "it is not good")
        chosen = services.placement.replacements(
            ledger.quorum, fragment.ensemble, frozenset(leaving), excluded
        )
        if isinstance(chosen, Shortage):
            return Blocked(describe_shortage(chosen))
        for position, bookie_id in chosen.items():
            ensemble[position] = bookie_id
        token = UpdateToken(services.rng.randbytes(UPDATE_TOKEN_BYTES))
        moved = ledger.with_ensemble_change(fragment.first_entry_id, tuple(ensemble), token)
        try:
            await services.ledgers.compare_and_set(moved, version)
        except MetadataError as error:
            return Postponed(str(error))
        return Repaired(len(leaving))

    async def _recover(
        self, ledger: LedgerMetadata, version: Version, standings: Standings
    ) -> Outcome:
        pool = self._services.pool
        try:
            keys = await keys_of(ledger, pool)
        except UnauthorizedError as error:
            return Blocked(str(error))
        except QuorumTimeoutError as error:
            return Postponed(str(error))
        except NotEnoughBookiesError as error:
            if any(standings.has_copy(BookieId(id_)) for id_ in error.excluded):
                return Blocked(str(error))
            keys = None
        try:
            if keys is None:
                return await self._recover_without_key(ledger, version, standings)
            await self._recoverer(ledger, version, keys, pool).recover(timeout_s=RECOVERY_TIMEOUT_S)
        except LedgerNotFoundError:
            return Deleted()
        except UnauthorizedError as error:
            return Blocked(f"{error}: {WITH_PASSWORD}")
        except (LedgerError, MetadataError) as error:
            return Postponed(str(error))
        return CLOSED

    async def _recover_without_key(
        self, ledger: LedgerMetadata, version: Version, standings: Standings
    ) -> Outcome:
        """Close a ledger of which no bookie that is left knows the key (rule 9.14). Raises
        LedgerError, MetadataError.
        """
        if ledger.last_fragment.first_entry_id > 0:
            return Blocked(
                "no bookie that is left knows its key, but it has confirmed entries: "
                f"{WITH_PASSWORD}, or delete it"
            )
        keys = LedgerKeys.of(ledger, b"")  # nothing is sent or made with them
        recoverer = self._recoverer(ledger, version, keys, KeylessBookies(self._services.pool))
        try:
            await recoverer.recover(timeout_s=RECOVERY_TIMEOUT_S)
        except UnauthorizedError as error:
            return Postponed(f"a bookie knows its key now: {error.message}")
        except RecoveryUndecidedError as error:
            if any(standings.has_copy(BookieId(id_)) for id_ in error.missing):
                return Postponed(error.message)
            missing = "; ".join(f"{id_}: {why}" for id_, why in error.missing.items())
            return Blocked(
                f"no bookie that is left knows its key, and too few can end it without one "
                f"({missing}): {WITH_PASSWORD}, or delete it"
            )
        return CLOSED

    def _recoverer(
        self, ledger: LedgerMetadata, version: Version, keys: LedgerKeys, bookies: RecoveryBookies
    ) -> Recoverer:
        services = self._services
        return Recoverer(
            metadata=ledger,
            version=version,
            keys=keys,
            pool=bookies,
            placement=services.placement,
            ledgers=services.ledgers,
            config=services.config,
            rng=services.rng,
        )
