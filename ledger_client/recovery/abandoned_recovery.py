"""Open ledgers whose writers are gone: found, and recovered.

Leaves the decision when a writer counts as gone to `missing_writers`, and a recovery itself to
`ledger_calls`. Readers see an open ledger up to its LAC. The last entries of a writer that was
killed are stored and may be acknowledged, but their LAC was not sent.

Invariants: a search fences and changes nothing, and finds no ledger whose writer is registered; it
asks the bookies of at most ASKED_MAX ledgers in one call. A ledger is recovered only if the node of
its writer's client was missing at each look for two session timeouts, or if its writer is fenced
already; without the right to recover a ledger nothing of it is changed, and nothing is waited for;
no ledger is recovered while a restore of the metadata is not accepted.

Source: protocol rules 8.1, 8.4, 9.2, 9.15, 10.6 and 12.4.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from bookie.wire.messages import LacReply, ReadLac, Status
from ledger_client.bookies.connection_calls import BookieCallError
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
from ledger_client.recovery.missing_writers import (
    LOOKS_APART_S_MAX,
    SESSIONS,
    MissingWriters,
    OpenAction,
)
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, ClientId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.paths import client_path
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import SESSION_TIMEOUT_S, find

LOOKS: Final = 10
"""Number of looks at a writer's node in the time for which it must be missing."""
PAUSE_S_MIN: Final = 0.05
"""Minimum time between two looks, in seconds."""
RECOVERIES_AT_ONCE: Final = 8
ASKED_MAX: Final = 20
"""Maximum number of ledgers whose bookies are asked for their last entries in one call."""
ASK_S: Final = 2.0
"""Maximum time for a bookie's answer, in seconds."""
READS_AT_ONCE: Final = 64
"""Maximum number of ledgers whose metadata is read at the same time."""
UNACCEPTED: Final = (
    "the metadata was restored from a dump, so the ledger may name old members, and nothing was "
    "changed: compare it (`quire metadata compare`), then run `quire metadata accept-restore`"
)
TOO_SELDOM: Final = (
    "the metadata service was too slow: looks at the node of its writer came more than "
    f"{LOOKS_APART_S_MAX:g} s apart, so nothing was changed: try again"
)
ItemT = TypeVar("ItemT")


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
    gone = [ledger.metadata.ledger_id for ledger in unclosed if ledger.is_abandoned]
    # Once more, from the newest metadata: a writer may close its ledger, and end, in between.
    asked = await written_ledgers(services, gone[:ASKED_MAX], timeout_s, fresh=True)
    ends = await asyncio.gather(
        *[_ends(services, ledger.metadata, password) for ledger in asked if ledger.is_abandoned]
    )
    hidden = tuple(end for end in ends if end.hidden_count > 0)
    return AbandonedLedgers(hidden, max(0, len(gone) - ASKED_MAX))


async def written_ledgers(
    services: ClientServices, ledger_ids: Sequence[LedgerId], timeout_s: float, *, fresh: bool
) -> list[WrittenLedger]:
    """Return those ledgers that exist and are not CLOSED, with a read of each writer's node after
    that of the ledger; `fresh` as for `MetadataStore.get`, and `timeout_s` for each step.
    """
    store = services.store
    written: list[WrittenLedger] = []
    for chunk in chunks(ledger_ids, READS_AT_ONCE):
        async with metadata_call("looking for the writers of ledgers", store.address, timeout_s):
            read = await asyncio.gather(*[_unclosed(services, id_, fresh=fresh) for id_ in chunk])
            ledgers = [metadata for metadata in read if metadata is not None]
            writers = list(dict.fromkeys(ledger.writer for ledger in ledgers))
            nodes = await asyncio.gather(
                *[find(store, client_path(writer), fresh=fresh) for writer in writers]
            )
        there: dict[ClientId, bool] = {
            writer: node is not None for writer, node in zip(writers, nodes, strict=True)
        }
        written += [WrittenLedger(ledger, there[ledger.writer]) for ledger in ledgers]
    return written


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
        max((confirmed, *(reply.lac for reply in replies))),
        max((confirmed, *(reply.highest_entry_id for reply in replies))),
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
            await self._recover_all([id_ for id_, due_s in looks.items() if due_s is None])
            waiting = {id_: due_s for id_, due_s in looks.items() if due_s is not None}
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
        for ledger in await self._unclosed(ledger_ids):
            action = self._missing.look(
                ledger.metadata,
                is_registered=ledger.is_registered,
                now_s=asyncio.get_running_loop().time(),
            )
            if action is OpenAction.LOOK_AGAIN:
                looks.append(_Look(ledger.metadata, self._missing.due_s(ledger.metadata.ledger_id)))
            elif action is OpenAction.RECOVER:
                looks.append(_Look(ledger.metadata, None))
        return looks

    async def _look_again(self, waiting: Mapping[LedgerId, float]) -> dict[LedgerId, float | None]:
        """Look at ledgers with the times at which they are due. Return them as `_permitted` does,
        without those whose writers came back.
        """
        now_s = asyncio.get_running_loop().time()
        looks: dict[LedgerId, float | None] = {}
        for ledger in await self._unclosed(list(waiting)):
            ledger_id = ledger.metadata.ledger_id
            action = self._missing.look(
                ledger.metadata, is_registered=ledger.is_registered, now_s=now_s
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
            errors = await asyncio.gather(*[self._refusal(look.metadata) for look in some])
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
            gone = [ledger for ledger in await self._unclosed(some) if ledger.is_abandoned]
            ledger_ids = [ledger.metadata.ledger_id for ledger in gone]
            if is_old:
                for id_ in ledger_ids:
                    self._failures[id_] = MetadataRefusedError(UNACCEPTED, ledger_id=id_)
            else:
                await asyncio.gather(*[self._recover(ledger_id) for ledger_id in ledger_ids])

    async def _unclosed(self, ledger_ids: Sequence[LedgerId]) -> list[WrittenLedger]:
        """Read ledgers and the nodes of their writers; record which ledgers ended."""
        written = await written_ledgers(self._services, ledger_ids, self._timeout_s, fresh=True)
        there = frozenset(ledger.metadata.ledger_id for ledger in written)
        self._ended |= dict.fromkeys(id_ for id_ in ledger_ids if id_ not in there)
        return written

    async def _recover(self, ledger_id: LedgerId) -> None:
        try:
            await LedgerCalls(self._services).recover(ledger_id, self._password, self._timeout_s)
        except LedgerNotFoundError:
            self._ended[ledger_id] = None
        except LedgerError as error:
            self._failures[ledger_id] = error
        else:
            self._ended[ledger_id] = None
