"""Copies of stored entries to one more bookie, or to a member that lost them.

Leaves the metadata changes before and after the copy of a fragment to `protocol/copy.py`. Leaves
the choice of targets to its callers: a writer whose member catches up (rule 11.2), and repair
(rules 9.1 and 9.12).

Invariants: nothing is sent to a target before it was read with valid digests; a piece counts only
after the target has returned it with the source's bytes. Every wait has a limit.

Source: protocol rules 9.1, 9.3, 9.8, 9.12 and 11.2.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final, Protocol

from bookie.wire.batch import BatchView
from bookie.wire.messages import ReadEntries, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    LedgerError,
    LedgerNotFoundError,
    MetadataConflictError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledger_client.metadata_failures import translate
from ledger_client.protocol.copy import (
    CopyPiece,
    CopyPlan,
    CopyRefused,
    CopyState,
    IncomingMark,
    copy_error,
    is_mark_unbroken,
    length_in_batch,
    plan_copy,
    refusal_error,
)
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import RangeReader, find_length_before
from ledger_client.reading.verified_entries import verify_entries
from metadata.backoff import until_answered
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, VersionConflictError
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.lifecycle_store import LifecycleStore

RECHECK_S: Final = 1.0
"""Longest time, in seconds, for which a request that waits does not look at the limits."""
COPIES_MAX: Final = 3
"""Maximum number of complete copies made because the mark may have been removed during the copy."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits of one copy. It uses up to `2 * request_bytes_max * (requests_at_once + 1)` bytes of
    memory.
    """

    request_bytes_max: int = 1024 * 1024
    """Approximate size of one request; a batch of the source always comes complete."""
    requests_at_once: int = 4

    def __post_init__(self) -> None:
        if self.request_bytes_max < 1 or self.requests_at_once < 1:
            raise ValueError("request_bytes_max and requests_at_once must be at least 1")


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of one copy; only entries read back from the target count.

    It starts again from zero in the rare case that everything must be copied again.
    """

    ledger_id: LedgerId
    fragment_first_entry_id: EntryId
    target: BookieId
    copied_entries: int
    total_entries: int
    copied_bytes: int
    """Payload bytes."""


OnProgress = Callable[[CopyProgress], None]
"""Called with the progress of a copy, after each piece."""


class Throttle(Protocol):
    """Spaces the requests of copies."""

    def take(self, size: int, now: float, source: BookieId | None) -> float:
        """Count `size` bytes that the bookie `source` returned; return the seconds to wait before
        they are used.
        """

    def left_s(self, now: float) -> float:
        """Return the seconds until all that was counted has passed, by the present limits."""


async def wait_for_turn(throttle: Throttle, size: int, source: BookieId | None) -> None:
    """Count `size` bytes that the bookie `source` returned, and wait until they may be used."""
    loop = asyncio.get_running_loop()
    wait_s = throttle.take(size, loop.time(), source)
    while wait_s > RECHECK_S:
        await asyncio.sleep(RECHECK_S)
        wait_s = min(wait_s - RECHECK_S, throttle.left_s(loop.time()))
    await asyncio.sleep(wait_s)


class CopyThrottle:
    """Spaces the requests of all copies of a client so that they stay below a rate.

    Over any period, at most one request more than the rate allows is admitted. Once the rate was
    raised, what was admitted before counts at the new rate, and what waits notices it within
    `RECHECK_S`.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        """Create a throttle. `bytes_per_s` is the maximum rate of bytes stored on targets; each is
        also read twice, from its source and back from its target. None for no limit.
        """
        self._bytes_per_s = bytes_per_s
        self._counted_at = float("inf")
        """Rate at which `_free_at` was computed."""
        self._free_at = float("-inf")

    def limit(self, bytes_per_s: float | None) -> None:
        """Change the rate for requests from now on."""
        self._bytes_per_s = bytes_per_s

    def take(self, size: int, now: float, source: BookieId | None = None) -> float:
        """Count `size` bytes of any source; return the seconds to wait before they are used."""
        if self._bytes_per_s is None:
            return 0.0
        wait_s = self.left_s(now)
        self._free_at = now + wait_s + size / self._bytes_per_s
        return wait_s

    def left_s(self, now: float) -> float:
        """Return the seconds until all that was counted has passed, at the present rate."""
        if self._bytes_per_s is None:
            return 0.0
        ahead_s = max(0.0, self._free_at - now)
        if self._counted_at < self._bytes_per_s:
            ahead_s *= self._counted_at / self._bytes_per_s
            self._free_at = now + ahead_s
        self._counted_at = self._bytes_per_s
        return ahead_s


class CopySource:
    """Reads entries in order, from any member that can return them."""

    def __init__(
        self, ranges: RangeReader, quorum: QuorumSpec, keys: LedgerKeys, config: ClientConfig
    ) -> None:
        self._ranges = ranges
        self._quorum = quorum
        self._keys = keys
        self._config = config
        self._next_entry_id = EntryId(0)
        self._length = 0  # the ledger's bytes before the next entry

    async def read(self, first: EntryId, last: EntryId) -> CopyPiece:
        """Return entries from `first` on, at most up to `last`."""
        try:
            answer = await self._ranges.read_verified(first, last, self._config.read_timeout_s)
            length = await self._length_before(first, answer.batches[0])
        except LedgerError as error:
            raise error.for_entry(first, "not_written") from error
        bytes_max = min(self._config.read_bytes_max, self._config.batch_bytes_max)
        piece = CopyPiece.of(answer, first, length, self._quorum, bytes_max, self._keys)
        self._next_entry_id = piece.next_entry_id
        self._length = length + piece.payload_bytes
        return piece

    async def _length_before(self, first: EntryId, batch: BatchView) -> int:
        """Return the ledger's bytes before an entry: a recovery may later request it from the
        target.
        """
        length = length_in_batch(batch, first)
        if length is not None:
            return length
        if first == self._next_entry_id:
            return self._length
        return await find_length_before(self._ranges, first, self._config.read_timeout_s)


class CopyTarget:
    """Stores pieces on the target; only entries that it then returns count.

    Batches that come back as they were sent cost one comparison of bytes; only others are taken
    apart.
    """

    def __init__(
        self, bookie_id: BookieId, keys: LedgerKeys, pool: BookiePool, config: ClientConfig
    ) -> None:
        self._bookie_id = bookie_id
        self._keys = keys
        self._pool = pool
        self._config = config

    async def store(self, piece: CopyPiece) -> CopyPiece:
        """Return the piece once the target has stored it and returned all of it."""
        keys = self._keys
        answers = _Answers([first for first, _ in piece.batches])
        for first, batch in piece.batches:
            self._pool.add(
                self._bookie_id, keys.ledger_id, batch, first, recovery=True, sink=answers
            )
        for first, status, reason in await answers.wait():
            if status is not Status.OK:
                raise self._refusal(first, status, reason)
        position = piece.first_entry_id
        while position < piece.next_entry_id:
            position = await self._check(piece, position)
        return piece

    async def _check(self, piece: CopyPiece, first: EntryId) -> EntryId:
        """Read back from an entry on and compare; return the entry after the correct ones."""
        config, keys = self._config, self._keys
        last = EntryId(piece.next_entry_id - 1)
        request = ReadEntries(keys.ledger_id, first, last, config.read_bytes_max, fence=False)
        try:
            answer = await self._pool.read_entries(
                self._bookie_id, request, timeout_s=config.read_timeout_s
            )
        except BookieCallError as error:
            raise self._refusal(first, error.status, error.reason) from error
        same_to = piece.same_to(answer, first)
        if same_to > first:
            return same_to
        good = verify_entries(answer, keys, first, last)  # other batches, or damage
        wrong = copy_error(self._bookie_id, piece, first, good, keys)
        if wrong is not None:
            raise wrong
        return good.next_entry_id

    def _refusal(self, first: EntryId, status: Status | None, reason: str) -> LedgerError:
        error = refusal_error(self._keys.ledger_id, self._bookie_id, first, status, reason)
        return self._pool.refusals.explained(error)


class _Answers:
    """Outcomes of a piece's adds. An `AddSink` of the pool."""

    def __init__(self, first_entry_ids: list[EntryId]) -> None:
        loop = asyncio.get_running_loop()
        self._outcomes: dict[EntryId, asyncio.Future[tuple[EntryId, Status | None, str]]] = {
            first: loop.create_future() for first in first_entry_ids
        }

    async def wait(self) -> list[tuple[EntryId, Status | None, str]]:
        """Return (first entry id, status, reason) of each; the pool guarantees that all come."""
        return await asyncio.gather(*self._outcomes.values())

    def on_add_answered(
        self, _bookie_id: BookieId, first_entry_id: EntryId, status: Status
    ) -> None:
        """Receive the target's answer."""
        self._settle(first_entry_id, status, "it refused")

    def on_add_failed(
        self, _bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Receive the report that no answer will come."""
        self._settle(first_entry_id, None, f"{failure.value}: {reason}")

    def _settle(self, first: EntryId, status: Status | None, reason: str) -> None:
        if not self._outcomes[first].done():  # otherwise nothing waits any more
            self._outcomes[first].set_result((first, status, reason))


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
    """Copies fragments of one ledger. The copies of one client share its throttle.

    The target is stored as a member only after one call wrote every entry to it and read it back,
    while the mark stood without a break; entries left by an earlier attempt do not shorten the
    copy. Nothing is left running when `copy_fragment` returns, and no mark if the metadata service
    answers.
    """

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
        source = CopySource(ranges, plan.copies.quorum, self._keys, config)
        target = CopyTarget(plan.target, self._keys, self._pool, config)
        counts = CopyProgress(
            self._ledger_id, plan.first_entry_id, plan.target, 0, plan.entry_count, 0
        )
        under_way: deque[asyncio.Task[CopyPiece]] = deque()
        loop = asyncio.get_running_loop()
        try:
            for first, last in plan.ranges():
                next_entry_id = EntryId(first)
                while next_entry_id <= last:
                    piece = await source.read(next_entry_id, EntryId(last))
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
        read = partial(self._ledgers.get, self._ledger_id, fresh=True)
        return await until_answered(self._rng, read)

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


class RangeCopier:
    """Copies ranges of one ledger to bookies that lost them.

    The bookie finds the range, and `quire.repair.bad_entries` says which ranges may be repaired.
    The bookie replaces only what it cannot read itself. Only this range is copied; the metadata
    does not change.
    """

    def __init__(
        self,
        *,
        pool: BookiePool,
        ledgers: LedgerStore,
        keys: LedgerKeys,
        config: ClientConfig,
        rng: Random,
        limits: CopyLimits,
        throttle: Throttle,
        on_progress: Callable[[CopyProgress], None],
    ) -> None:
        self._pool = pool
        self._ledgers = ledgers
        self._keys = keys
        self._config = replace(config, read_bytes_max=limits.request_bytes_max)
        self._rng = rng
        self._throttle = throttle
        self._on_progress = on_progress

    async def copy(self, first: EntryId, last: EntryId, target: BookieId) -> int:
        """Store the entries first..last of one closed fragment on a member of it; return how many
        payload bytes were copied. The bookie must hold all of them.

        Raises EntryNotFoundError, DigestMismatchError or QuorumTimeoutError when an entry cannot be
        read at any member, and the first two also when the target does not return what it stored;
        NotEnoughBookiesError when it fails or refuses; EntryConflictError when it stores other
        bytes; UnauthorizedError, LedgerNotFoundError, MetadataError.
        """
        keys = self._keys
        stored = await self._ledgers.get(keys.ledger_id, fresh=True)
        self._pool.attach(keys.ledger_id, keys.master_key)
        try:
            ledger = FollowedLedger(*stored, self._ledgers, self._rng)
            ranges = RangeReader(ledger, keys, self._pool, self._config, self._rng)
            quorum = stored[0].quorum_of(stored[0].fragment_of(first))
            source = CopySource(ranges, quorum, keys, self._config)
            return await self._copy(source, first, last, target)
        finally:
            self._pool.detach(keys.ledger_id)

    async def _copy(
        self, source: CopySource, first: EntryId, last: EntryId, target: BookieId
    ) -> int:
        end = CopyTarget(target, self._keys, self._pool, self._config)
        next_entry_id, copied_bytes = first, 0
        while next_entry_id <= last:
            piece = await source.read(next_entry_id, last)
            await wait_for_turn(self._throttle, piece.batch_bytes, piece.source)
            await end.store(piece)
            next_entry_id = piece.next_entry_id
            copied_bytes += piece.payload_bytes
            progress = CopyProgress(
                self._keys.ledger_id,
                first,
                target,
                next_entry_id - first,
                last + 1 - first,
                copied_bytes,
            )
            self._on_progress(progress)
        return copied_bytes
