"""Copy of a ledger's closed fragments to one more bookie, which becomes a member once it holds them
completely.

Leaves the metadata changes before and after to `protocol/copy.py`, reading and storing entries to
`copy_ends`, and the choice of targets to its callers: a writer whose member catches up (rule 11.2),
and repair (rule 9.1).

Invariants: the target is stored as a member only after this call wrote every entry to it and read
it back, with valid digests and the source's bytes, while the mark stood without a break; entries
left by an earlier attempt do not shorten the copy. Every wait has a limit; nothing is left running
when `copy_fragment` returns, and no mark if the metadata service answers.

Source: protocol rules 9.1, 9.3, 9.8, 11.2.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    LedgerNotFoundError,
    MetadataConflictError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledger_client.in_sync.copy_ends import CopySource, CopyTarget
from ledger_client.in_sync.copy_limits import CopyLimits, CopyProgress, Throttle, wait_for_turn
from ledger_client.metadata_failures import translate
from ledger_client.protocol.copy import (
    CopyPlan,
    CopyRefused,
    CopyState,
    IncomingMark,
    is_mark_unbroken,
    plan_copy,
)
from ledger_client.protocol.copy_piece import CopyPiece
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import RangeReader
from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, StoreUnavailableError, VersionConflictError
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.lifecycle_store import LifecycleStore

COPIES_MAX: Final = 3
"""Maximum number of complete copies made because the mark may have been removed during the copy."""

StoredMetadata = tuple[LedgerMetadata, Version]
MetadataChange = Callable[[LedgerMetadata, Version], LedgerMetadata | None]


@dataclass(frozen=True, slots=True)
class CopyServices:
    """Bookies and metadata that a copy uses."""

    pool: BookiePool
    ledgers: LedgerStore
    config: ClientConfig
    rng: Random
    lifecycles: LifecycleStore | None = None
    """May be absent if every target is a member of the open fragment: such a bookie is not removed.
    """


class FragmentCopier:
    """Copies fragments of one ledger. The copies of one client share its throttle."""

    def __init__(
        self,
        *,
        services: CopyServices,
        keys: LedgerKeys,
        limits: CopyLimits,
        throttle: Throttle,
        on_progress: Callable[[CopyProgress], None],
    ) -> None:
        self._pool = services.pool
        self._ledgers = services.ledgers
        self._config = services.config
        self._rng = services.rng
        self._lifecycles = services.lifecycles
        self._ledger_id = keys.ledger_id
        self._keys = keys
        self._limits = limits
        self._on_progress = on_progress
        self._throttle = throttle

    async def copy_fragment(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        target: BookieId,
        replaces: BookieId | None = None,
    ) -> StoredMetadata:
        """Copy the fragment that starts at an entry, store the target as its member, and return the
        stored metadata. Does nothing if the target is a member already.

        Raises the following errors, after removing the mark and with the members unchanged:
        EntryNotFoundError, DigestMismatchError or QuorumTimeoutError when an entry cannot be read
        at any source, the first two also when the target does not return what it stored;
        NotEnoughBookiesError when the target fails or refuses (try another); EntryConflictError
        when it stores other bytes; MetadataConflictError when the fragment cannot be copied in this
        way, or was changed concurrently; UnauthorizedError, LedgerNotFoundError, and
        MetadataUnavailableError (outcome "unknown": the target may be a member; call again). When
        cancelled, it removes the mark within `close_timeout_s`.
        """
        assert ledger_id == self._ledger_id, "a copier has the keys of one ledger"
        async with self._metadata_call("reading the metadata"):
            stored = await self._stored_now()
        plan = plan_copy(stored[0], first_entry_id, target, replaces)
        if plan is None:
            return stored
        if isinstance(plan, CopyRefused):
            raise MetadataConflictError(plan.reason, ledger_id=ledger_id)
        has_entries = plan.entry_count > 0  # otherwise nothing is sent, and the key may be unknown
        if has_entries:
            self._pool.attach(ledger_id, self._keys.master_key)
        try:
            return await self._copy_under_mark(plan, stored)
        except (Exception, asyncio.CancelledError):
            await self._unmark(plan)
            raise
        finally:
            if has_entries:
                self._pool.detach(ledger_id)

    async def remove_stray(self, mark: IncomingMark) -> StoredMetadata:
        """Remove a mark that an earlier copy left, unless its target is a member again; return the
        stored metadata. Raises LedgerNotFoundError and MetadataUnavailableError.
        """

        def remove(now: LedgerMetadata, _version: Version) -> LedgerMetadata | None:
            return mark.removed(now, self._token()) if mark.is_stray(now) else None

        async with self._metadata_call("removing the mark of an incoming bookie"):
            return await self._change(await self._stored_now(), remove)

    # -- the steps ---------------------------------------------------------------------------------

    async def _copy_under_mark(self, plan: CopyPlan, stored: StoredMetadata) -> StoredMetadata:
        stored = await self._mark(plan, stored)
        for _ in range(COPIES_MAX):
            if plan.standing(stored[0]) is CopyState.NAMED:
                return stored  # another copier, under the same rules, made it a member
            progress = await self._copy(plan, stored)
            stored = await self._name(plan, stored)
            if plan.standing(stored[0]) is CopyState.NAMED:
                self._on_progress(progress)
                return stored
        text = (
            f"it was changed, although closed, during each of {COPIES_MAX} copies: try again later"
        )
        raise MetadataConflictError(text, ledger_id=self._ledger_id)

    async def _mark(self, plan: CopyPlan, stored: StoredMetadata) -> StoredMetadata:
        """Store the target as incoming, unless it is already."""

        def mark(now: LedgerMetadata, _version: Version) -> LedgerMetadata | None:
            if self._standing(plan, now) is not CopyState.UNMARKED:
                return None
            return plan.marked(now, self._token())

        async with self._metadata_call("storing the target as incoming"):
            return await self._change(stored, mark)

    async def _copy(self, plan: CopyPlan, stored: StoredMetadata) -> CopyProgress:
        """Copy the complete fragment; return the last progress."""
        ledger = FollowedLedger(*stored, self._ledgers, self._rng)
        limits, config = self._limits, self._config
        config = replace(config, read_bytes_max=limits.request_bytes_max)
        ranges = RangeReader(ledger, self._keys, self._pool, config, self._rng)
        source = CopySource(ranges, plan.quorum, self._keys, config)
        target = CopyTarget(plan.target, self._keys, self._pool, config)
        counts = CopyProgress(
            self._ledger_id, plan.first_entry_id, plan.target, 0, plan.entry_count, 0
        )
        under_way: deque[asyncio.Task[CopyPiece]] = deque()
        loop = asyncio.get_running_loop()
        try:
            for first, last in plan.ranges():
                next_entry_id = first
                while next_entry_id <= last:
                    piece = await source.read(next_entry_id, last)
                    next_entry_id = piece.next_entry_id
                    await wait_for_turn(self._throttle, piece.batch_bytes, piece.source)
                    if len(under_way) == limits.requests_at_once:
                        counts = self._count(counts, await under_way.popleft())
                    under_way.append(loop.create_task(target.store(piece)))
            while under_way:
                counts = self._count(counts, await under_way.popleft())
        finally:
            await cancel_and_wait(*under_way)
        assert counts.copied_entries == counts.total_entries, "the copy is complete"
        return counts

    async def _name(self, plan: CopyPlan, stored: StoredMetadata) -> StoredMetadata:
        """Make the target a member, unless everything must be copied again.

        Its state is read after the mark was seen. So a bookie that becomes a member was active when
        the mark stood, and the pass that finds that nothing names a removed bookie (rule 9.8) would
        have found the mark.
        """
        unbroken = stored[1]
        async with self._metadata_call("storing the target as a member"):
            while True:
                standing = self._standing(plan, stored[0])
                if standing is CopyState.UNMARKED:
                    text = f"another process ended the copy to {plan.target}: start it again"
                    raise MetadataConflictError(text, ledger_id=self._ledger_id)
                if standing is CopyState.NAMED or not is_mark_unbroken(unbroken, *stored):
                    return stored
                unbroken = stored[1]
                await self._require_active(plan.target)
                named = plan.named(stored[0], self._token())
                try:
                    return named, await self._ledgers.compare_and_set(named, stored[1])
                except VersionConflictError:
                    stored = await self._stored_now()

    async def _require_active(self, target: BookieId) -> None:
        if self._lifecycles is None:
            return
        record = await self._lifecycles.get(target, agreed=True)
        if not record.state.may_store:
            raise NotEnoughBookiesError(
                f"bookie {target} is {record.state}: it is not made a member; copy to another",
                needed=1,
                seen=0,
                excluded={str(target): f"it is {record.state}"},
                ledger_id=self._ledger_id,
            )

    async def _unmark(self, plan: CopyPlan) -> None:
        """Remove the mark. If that fails, the next attempt continues under it, or `remove_stray`
        removes it.
        """
        try:
            async with asyncio.timeout(self._config.close_timeout_s):
                await self._change(
                    await self._stored_now(), lambda now, _: plan.unmarked(now, self._token())
                )
        except (MetadataError, TimeoutError):
            return

    def _count(self, counts: CopyProgress, piece: CopyPiece) -> CopyProgress:
        counts = replace(
            counts,
            copied_entries=counts.copied_entries + piece.entry_count,
            copied_bytes=counts.copied_bytes + piece.payload_bytes,
        )
        self._on_progress(counts)
        return counts

    # -- metadata ----------------------------------------------------------------------------------

    def _standing(self, plan: CopyPlan, now: LedgerMetadata) -> CopyState:
        """Return the fragment's standing; raise if the copy cannot continue."""
        match standing := plan.standing(now):
            case CopyState.GONE:
                text = "it was deleted while it was copied: no copy is needed"
                raise LedgerNotFoundError(text, ledger_id=self._ledger_id)
            case CopyState.CHANGED:
                raise MetadataConflictError(
                    f"the fragment at entry {plan.first_entry_id} was changed by another process "
                    f"while it was copied to {plan.target}: check whether it still needs a copy",
                    ledger_id=self._ledger_id,
                )
            case _:
                return standing

    async def _change(self, stored: StoredMetadata, change: MetadataChange) -> StoredMetadata:
        """Store the result of `change` for the current metadata, and return it; None means no
        change.
        """
        while (changed := change(*stored)) is not None:
            try:
                return changed, await self._ledgers.compare_and_set(changed, stored[1])
            except VersionConflictError:
                stored = await self._stored_now()
        return stored

    async def _stored_now(self) -> StoredMetadata:
        """Read the metadata; repeat while the store is not available."""
        backoff = Backoff(self._rng)
        while True:
            try:
                return await self._ledgers.get(self._ledger_id, fresh=True)
            except StoreUnavailableError:
                await asyncio.sleep(backoff.next_s())

    @asynccontextmanager
    async def _metadata_call(self, what: str) -> AsyncIterator[None]:
        limit_s = self._config.metadata_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                yield
        except MetadataError as error:
            raise translate(error, self._ledger_id) from error
        except TimeoutError as error:
            text = f"{what} did not end within {limit_s:g} s: call again to continue from there"
            raise MetadataUnavailableError(
                text, ledger_id=self._ledger_id, outcome="unknown"
            ) from error

    def _token(self) -> UpdateToken:
        return UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))
