"""Recovery of open ledgers whose writers are gone, and of no other ones.

Leaves the decision when a writer counts as gone to `missing_writers`, and a recovery itself to
`ledger_calls`.

Invariants: a ledger is recovered only if the node of its writer's client was missing at each look
for two session timeouts, or if its writer is fenced already; without the right to recover a ledger
nothing of it is changed, and nothing is waited for; no ledger is recovered while a restore of the
metadata is not accepted.

Source: protocol rules 9.2, 9.15, 10.6 and 12.4.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ledger_client.client_services import ClientServices
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    LedgerError,
    LedgerNotFoundError,
    MetadataRefusedError,
    MetadataUnavailableError,
)
from ledger_client.ledger_calls import LedgerCalls
from ledger_client.metadata_failures import metadata_call
from ledger_client.recovery.abandoned_ledgers import chunks, written_ledgers
from ledger_client.recovery.missing_writers import (
    LOOKS_APART_S_MAX,
    SESSIONS,
    MissingWriters,
    OpenAction,
)
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import SESSION_TIMEOUT_S

LOOKS: Final = 10
"""Number of looks at a writer's node in the time for which it must be missing."""
LOOKS_MAX: Final = 100
"""Maximum number of looks; more are due only if looks are too far apart to count together."""
PAUSE_S_MIN: Final = 0.05
"""Minimum time between two looks, in seconds."""
RECOVERIES_AT_ONCE: Final = 8
UNACCEPTED: Final = (
    "the metadata was restored from a dump, so the ledger may name old members, and nothing was "
    "changed: compare it (`quire metadata compare`), then run `quire metadata accept-restore`"
)
TOO_SELDOM: Final = (
    "the metadata service was too slow: looks at the node of its writer came more than "
    f"{LOOKS_APART_S_MAX:g} s apart, so nothing was changed: try again"
)


@dataclass(frozen=True, slots=True)
class AbandonedRecovered:
    """Outcome of a recovery of abandoned ledgers. Ledgers of live writers are in neither part."""

    ended: tuple[int, ...]
    """Ledgers that are closed now, or were deleted."""
    failures: Mapping[int, LedgerError]
    """Why each other ledger without a writer was not recovered."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A ledger whose writer is missing."""

    metadata: LedgerMetadata
    due_s: float | None
    """Time at which the ledger is to be recovered; None for now."""


class AbandonedRecovery:
    """One recovery of many ledgers."""

    def __init__(self, services: ClientServices, password: bytes, timeout_s: float) -> None:
        """Use one password for all ledgers; `timeout_s` limits each step and each recovery."""
        self._services = services
        self._password = password
        self._timeout_s = timeout_s
        # Writers may have longer sessions than this client, but seldom longer than the default.
        session_s = max(SESSION_TIMEOUT_S, services.config.session_timeout_s)
        self._pause_s = SESSIONS * session_s / LOOKS
        self._missing = MissingWriters(session_s)
        self._ended: dict[LedgerId, None] = {}
        self._failures: dict[int, LedgerError] = {}

    async def recover(self, ledger_ids: Iterable[LedgerId]) -> AbandonedRecovered:
        """Recover the ledgers whose writers are gone. Waits two session timeouts, and only if there
        is such a ledger. Raises MetadataUnavailableError and the other errors of the metadata
        service.
        """
        wanted = list(dict.fromkeys(ledger_ids))
        for number in range(LOOKS_MAX):
            looks = await self._look(wanted)
            if not number:
                looks = await self._permitted(looks)
            await self._recover_all([each.metadata for each in looks if each.due_s is None])
            dues = {each.metadata.ledger_id: each.due_s for each in looks if each.due_s is not None}
            wanted = list(dues)
            if not wanted:
                break
            left_s = min(dues.values()) - asyncio.get_running_loop().time()
            await asyncio.sleep(max(PAUSE_S_MIN, min(left_s, self._pause_s)))
        for each in wanted:
            self._failures[each] = MetadataUnavailableError(TOO_SELDOM, ledger_id=each)
        return AbandonedRecovered(tuple(self._ended), self._failures)

    async def _look(self, ledger_ids: Sequence[LedgerId]) -> list[_Look]:
        """Look at ledgers, and return those whose writers are missing."""
        missing, looks = self._missing, list[_Look]()
        found = await written_ledgers(self._services, ledger_ids, self._timeout_s, fresh=True)
        there = frozenset(each.metadata.ledger_id for each in found)
        self._ended |= dict.fromkeys(each for each in ledger_ids if each not in there)
        for each in found:
            now_s = asyncio.get_running_loop().time()
            match missing.look(each.metadata, is_registered=each.is_registered, now_s=now_s):
                case OpenAction.LOOK_AGAIN:
                    due_s = missing.due_s(each.metadata.ledger_id)
                    looks.append(_Look(each.metadata, due_s))
                case OpenAction.RECOVER:
                    looks.append(_Look(each.metadata, None))
                case OpenAction.LEAVE | OpenAction.MOVE:
                    pass
        return looks

    async def _permitted(self, looks: Sequence[_Look]) -> list[_Look]:
        """Return the looks at ledgers that this client may recover."""
        errors: list[LedgerError | None] = []
        for some in chunks(looks, RECOVERIES_AT_ONCE):
            errors += await asyncio.gather(*[self._refusal(each.metadata) for each in some])
        for look, error in zip(looks, errors, strict=True):
            if error is not None:
                self._failures[look.metadata.ledger_id] = error
        return [look for look, error in zip(looks, errors, strict=True) if error is None]

    async def _refusal(self, metadata: LedgerMetadata) -> LedgerError | None:
        keys = LedgerKeys.of(metadata, self._password)
        try:
            await self._services.principal.check_may_recover(metadata, keys)
        except LedgerError as error:
            return error
        return None

    async def _recover_all(self, ready: Sequence[LedgerMetadata]) -> None:
        if not ready:
            return
        ledger_ids = [each.ledger_id for each in ready]
        store = self._services.store
        async with metadata_call("reading the record of a restore", store.address, self._timeout_s):
            is_old = await is_unaccepted(store)
        if is_old:
            for each in ledger_ids:
                self._failures[each] = MetadataRefusedError(UNACCEPTED, ledger_id=each)
            return
        for some in chunks(ledger_ids, RECOVERIES_AT_ONCE):
            await asyncio.gather(*[self._recover(each) for each in some])

    async def _recover(self, ledger_id: LedgerId) -> None:
        try:
            await LedgerCalls(self._services).recover(ledger_id, self._password, self._timeout_s)
        except LedgerNotFoundError:
            self._ended[ledger_id] = None
        except LedgerError as error:
            self._failures[ledger_id] = error
        else:
            self._ended[ledger_id] = None
