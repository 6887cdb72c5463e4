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
from ledger_client.recovery.abandoned_ledgers import (
    WrittenLedger,
    chunks,
    written_ledgers,
)
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
        looks = await self._permitted(await self._look_first(list(dict.fromkeys(ledger_ids))))
        while looks:
            await self._recover_all([each for each, due_s in looks.items() if due_s is None])
            waiting = {each: due_s for each, due_s in looks.items() if due_s is not None}
            if not waiting:
                break
            left_s = min(waiting.values()) - asyncio.get_running_loop().time()
            await asyncio.sleep(max(PAUSE_S_MIN, min(left_s, self._pause_s)))
            looks = await self._look_again(waiting)
        return AbandonedRecovered(tuple(self._ended), self._failures)

    async def _look_first(self, ledger_ids: Sequence[LedgerId]) -> list[_Look]:
        """Return the first looks at the ledgers without a writer. Their time is that after the
        reads, and the time of later ones that before: so the reads are as far apart as the rule
        wants.
        """
        looks: list[_Look] = []
        for each in await self._unclosed(ledger_ids):
            action = self._missing.look(
                each.metadata,
                is_registered=each.is_registered,
                now_s=asyncio.get_running_loop().time(),
            )
            if action is OpenAction.LOOK_AGAIN:
                looks.append(_Look(each.metadata, self._missing.due_s(each.metadata.ledger_id)))
            elif action is OpenAction.RECOVER:
                looks.append(_Look(each.metadata, None))
        return looks

    async def _look_again(self, waiting: Mapping[LedgerId, float]) -> dict[LedgerId, float | None]:
        """Look at ledgers with the times at which they are due. Return them as `_permitted` does,
        without those whose writers came back.
        """
        now_s = asyncio.get_running_loop().time()
        looks: dict[LedgerId, float | None] = {}
        for each in await self._unclosed(list(waiting)):
            ledger_id = each.metadata.ledger_id
            action = self._missing.look(
                each.metadata, is_registered=each.is_registered, now_s=now_s
            )
            if action is OpenAction.RECOVER:
                looks[ledger_id] = None
            elif action is OpenAction.LOOK_AGAIN:
                if self._missing.due_s(ledger_id) == waiting[ledger_id]:
                    looks[ledger_id] = waiting[ledger_id]
                else:  # the time began again
                    error = MetadataUnavailableError(TOO_SELDOM, ledger_id=ledger_id)
                    self._failures[ledger_id] = error
        return looks

    async def _permitted(self, looks: Sequence[_Look]) -> dict[LedgerId, float | None]:
        """Return the ledgers that this client may recover, with the time at which each is due; None
        for now.
        """
        permitted: dict[LedgerId, float | None] = {}
        for some in chunks(looks, RECOVERIES_AT_ONCE):
            errors = await asyncio.gather(*[self._refusal(each.metadata) for each in some])
            for look, error in zip(some, errors, strict=True):
                if error is None:
                    permitted[look.metadata.ledger_id] = look.due_s
                else:
                    self._failures[look.metadata.ledger_id] = error
        return permitted

    async def _refusal(self, metadata: LedgerMetadata) -> LedgerError | None:
        keys = LedgerKeys.of(metadata, self._password)
        try:
            await self._services.principal.check_may_recover(metadata, keys)
        except LedgerError as error:
            return error
        return None

    async def _recover_all(self, ready: Sequence[LedgerId]) -> None:
        """Recover ledgers, each after one more look: the recoveries before it may take long."""
        store = self._services.store
        for some in chunks(ready, RECOVERIES_AT_ONCE):
            what = "reading the record of a restore"
            async with metadata_call(what, store.address, self._timeout_s):
                is_old = await is_unaccepted(store)
            gone = [each for each in await self._unclosed(some) if each.is_abandoned]
            ledger_ids = [each.metadata.ledger_id for each in gone]
            if is_old:
                for each in ledger_ids:
                    self._failures[each] = MetadataRefusedError(UNACCEPTED, ledger_id=each)
            else:
                await asyncio.gather(*[self._recover(each) for each in ledger_ids])

    async def _unclosed(self, ledger_ids: Sequence[LedgerId]) -> list[WrittenLedger]:
        """Read ledgers and the nodes of their writers; record which ledgers ended."""
        found = await written_ledgers(self._services, ledger_ids, self._timeout_s, fresh=True)
        there = frozenset(each.metadata.ledger_id for each in found)
        self._ended |= dict.fromkeys(each for each in ledger_ids if each not in there)
        return found

    async def _recover(self, ledger_id: LedgerId) -> None:
        try:
            await LedgerCalls(self._services).recover(ledger_id, self._password, self._timeout_s)
        except LedgerNotFoundError:
            self._ended[ledger_id] = None
        except LedgerError as error:
            self._failures[ledger_id] = error
        else:
            self._ended[ledger_id] = None
