"""Claims of ledgers: which worker repairs a ledger, and how far it is.

Leaves the copying to the workers. A claim only avoids double work: every change of a ledger is a
compare-and-set, so two workers that repair one ledger for a moment do no harm.

The node is ephemeral (`ephemeral.py`); its content is a `Claim`.

Invariants: at most one live session holds a claim; a claim ends with the session in which it was
made, by the clock of its holder before another worker can have it; reports are written at most
once per REPORT_INTERVAL_S.

Source: protocol rules 1.2, 9.1 and 9.3.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Final

from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import LedgerId, is_ledger_id
from metadata.paths import LEDGER_ID_DIGITS, REPAIR_CLAIMS, repair_claim_path
from metadata.records import NOT_STORED, Bytes, Ms, codec_of
from metadata.store.child_values import READS_AT_ONCE_MAX
from metadata.store.ephemeral import (
    INCARNATION_BYTES,
    REMOVE_S_MAX,
    HeldNode,
    pack_held,
    unpack_held,
)
from metadata.store.interface import MetadataStore, SessionState, Stored, find
from metadata.store.value_changes import until_certain

REPORT_INTERVAL_S: Final = 5.0
UNREADABLE: Final = "unreadable"
"""Worker, in lists, of a claim that this release cannot read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of one ledger, as its holder last reported it."""

    ledger_id: Annotated[LedgerId, NOT_STORED]
    worker_id: str
    since_ms: Ms
    copied_bytes: Bytes = 0
    """Payload bytes of all copies of the ledger that the worker has made, or makes now."""
    total_bytes: Bytes = 0
    """Bytes to copy, as estimated for the job; 0 if only damaged or missing entries are copied."""
    target: str = ""
    """The bookie to which the worker copies now; empty while it copies nothing."""


CLAIM_CODEC: Final = codec_of(Claim)


class HeldClaim:
    """Claim that this process holds, from `ClaimStore.claim` to `release`. Release a claim that is
    no longer held too.
    """

    def __init__(self, store: MetadataStore, claim: Claim, incarnation: bytes) -> None:
        self._store = store
        self._path = repair_claim_path(claim.ledger_id)
        self._claim = claim
        self._incarnation = incarnation
        self._session_id = store.session_id
        self._is_gone = False
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._write_reports())

    @property
    def ledger_id(self) -> LedgerId:
        """The claimed ledger."""
        return self._claim.ledger_id

    @property
    def is_held(self) -> bool:
        """Whether this process holds the claim, as far as its session shows. False is final."""
        self._is_gone = self._is_gone or not (
            self._store.session_id == self._session_id
            and self._store.session_state in (SessionState.CONNECTED, SessionState.SUSPENDED)
        )
        return not self._is_gone

    def report(self, copied_bytes: int, total_bytes: int, target: str) -> None:
        """Report how far the repair is. The last report is written when REPORT_INTERVAL_S have
        passed since the last write.
        """
        claim = replace(
            self._claim, copied_bytes=copied_bytes, total_bytes=total_bytes, target=target
        )
        if claim != self._claim:
            self._claim = claim
            self._wake.set()

    async def release(self) -> None:
        """End the claim, and remove it if the store answers within REMOVE_S_MAX. Otherwise the end
        of the session removes it.
        """
        await cancel_and_wait(self._task)
        if not self.is_held:
            return
        try:
            async with asyncio.timeout(REMOVE_S_MAX):
                stored = await find(self._store, self._path)
                if stored is not None and self._is_ours(stored):
                    await self._store.delete(self._path, stored.version)
        except (MetadataError, TimeoutError) as error:
            _log.debug("%s stays until the session ends: %s", self._path, error)
        finally:
            self._is_gone = True

    async def _write_reports(self) -> None:
        while self.is_held:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write()
            except MetadataError as error:
                _log.debug("cannot write %s, trying again: %s", self._path, error)
                self._wake.set()
            await asyncio.sleep(REPORT_INTERVAL_S)

    async def _write(self) -> None:
        # The node is read each time: a new node of another worker may have the same version.
        stored = await find(self._store, self._path)
        if stored is None or not self._is_ours(stored):
            self._is_gone = True
            return
        value = _value_of(self._claim, self._incarnation, self._session_id)
        await self._store.compare_and_set(self._path, value, stored.version)

    def _is_ours(self, stored: Stored) -> bool:
        return _is_of(self._path, stored, self._incarnation, self._session_id)


class ClaimStore:
    """Claims of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng
        self._incarnation = rng.randbytes(INCARNATION_BYTES)
        self._held: dict[LedgerId, HeldClaim | None] = {}
        self._own: set[LedgerId] = set()
        """Ledgers with a node of this process, also one whose removal failed."""

    async def claim(self, ledger_id: LedgerId, worker_id: str, now_ms: int) -> HeldClaim | None:
        """Claim a ledger; return None if another worker, or another task of this one, holds it.

        Repeats until the outcome is certain or the call is cancelled. Raises StoreUnavailableError
        when nothing was written.
        """
        self._held = {id_: held for id_, held in self._held.items() if _is_in_use(held)}
        if ledger_id in self._held:
            return None
        claim = Claim(ledger_id, worker_id, now_ms)
        self._held[ledger_id] = None
        self._own.add(ledger_id)
        try:
            is_ours = await self._create(claim)
        except BaseException:
            del self._held[ledger_id]
            raise
        if not is_ours:
            del self._held[ledger_id]
            self._own.discard(ledger_id)
            return None
        held = HeldClaim(self._store, claim, self._incarnation)
        self._held[ledger_id] = held
        return held

    async def claimed_by_others(self) -> frozenset[LedgerId]:
        """Return the ledgers that other workers claim, with one read: a claim that fails is a write
        of the metadata service, so a worker looks before it claims. A node of this process that
        could not be removed is no obstacle: `claim` takes it over. Raises MetadataError.
        """
        names = await self._store.children(REPAIR_CLAIMS)
        claimed = {LedgerId(int(name)) for name in names if _is_ledger_name(name)}
        self._own &= claimed | self._held.keys()
        return frozenset(claimed - self._own)

    async def get_all(self) -> list[Claim]:
        """Read all claims of the cluster, in the order of their ledgers; the worker of one that
        cannot be read is UNREADABLE. Raises MetadataError.
        """
        names = await self._store.children(REPAIR_CLAIMS, fresh=True)
        held: list[Claim] = []
        for start in range(0, len(names), READS_AT_ONCE_MAX):
            some = names[start : start + READS_AT_ONCE_MAX]
            claims = await asyncio.gather(*map(self._read, some))
            held += [claim for claim in claims if claim is not None]
        return held

    async def _create(self, claim: Claim) -> bool:
        """Create the node in the present session. Returns False if another process holds it."""
        path = repair_claim_path(claim.ledger_id)

        async def attempt(_unknown_count: int) -> bool:
            value = _value_of(claim, self._incarnation, self._store.session_id)
            stored = await find(self._store, path)
            if stored is None:
                with contextlib.suppress(NodeExistsError):
                    await self._store.create(path, value, ephemeral=True)
                stored = await find(self._store, path)
            if stored is None:
                raise NodeNotFoundError(path)
            if unpack_held(path, stored.value).incarnation != self._incarnation:
                return False
            if _is_of(path, stored, self._incarnation, self._store.session_id):
                return True
            # It is from an earlier session of this process: it is about to vanish.
            await self._store.delete(path, stored.version)
            raise NodeNotFoundError(path)

        again = (NodeNotFoundError, VersionConflictError)
        return await until_certain(self._rng, attempt, again=again)

    async def _read(self, name: str) -> Claim | None:
        if not _is_ledger_name(name):
            return None
        ledger_id = LedgerId(int(name))
        stored = await find(self._store, repair_claim_path(ledger_id))
        try:
            return None if stored is None else unpack_claim(ledger_id, stored.value)
        except MetadataFormatError:  # of a later release, as a rule
            return Claim(ledger_id, UNREADABLE, 0)


def unpack_claim(ledger_id: LedgerId, value: bytes) -> Claim:
    """Read the value of a claim's node. Raises MetadataFormatError for anything else."""
    path = repair_claim_path(ledger_id)
    return CLAIM_CODEC.unpack(path, unpack_held(path, value).content, ledger_id=ledger_id)


def _value_of(claim: Claim, incarnation: bytes, session_id: int) -> bytes:
    content = CLAIM_CODEC.pack(f"the claim of ledger {claim.ledger_id}", claim)
    return pack_held(HeldNode(incarnation, session_id, content))


def _is_of(path: str, stored: Stored, incarnation: bytes, session_id: int) -> bool:
    return unpack_held(path, stored.value).is_of(incarnation, session_id)


def _is_in_use(held: HeldClaim | None) -> bool:
    """Return whether a claim is held, or is being made (None)."""
    return held is None or held.is_held


def _is_ledger_name(name: str) -> bool:
    is_number = len(name) == LEDGER_ID_DIGITS and name.isascii() and name.isdigit()
    return is_number and is_ledger_id(int(name))
