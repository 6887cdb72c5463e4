"""Store of ledger metadata: typed, changed by compare-and-set alone, with every unknown outcome
decided.

Leaves the changes, and the reaction to a conflict, to the calling protocols.

Invariants: only its token shows that a change was applied (rule 1.3); a ledger and its entry in the
deletion feed change in one step (rule 10.1); an id is used for one ledger only (rule 10.2), so a
compare-and-set of the writer of a deleted ledger never meets another ledger at the same version.

Source: protocol rules 1.2-1.4 and 10.1; metadata design, "Ledgers", "Storms" and "Deletion".
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataFormatError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import LedgerId, Version
from metadata.ledgers.codec import decode_ledger_metadata, encode_ledger_metadata
from metadata.ledgers.deletion_feed import deletion_of
from metadata.ledgers.ledger_ids import FIRST_ID
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import (
    DELETION_SHARDS,
    LEDGER_IDS,
    LEDGERS,
    LEVEL_DIGITS,
    chosen_id_path,
    deletion_shard_path,
    is_level_name,
    ledger_id_of,
    ledger_path,
    level_names,
)
from metadata.store.batching import BatchingStore
from metadata.store.interface import (
    Cancel,
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SessionState,
    WatchCallback,
    find,
)
from metadata.store.number_blocks import pack_block, unpack_block
from metadata.store.value_changes import until_certain

FIRST_VERSION: Final = Version(0)
FIRST_LEDGER_ID: Final = LedgerId(0)
_AWAY: Final = (SessionState.SUSPENDED, SessionState.EXPIRED)


class LedgerStore:
    """Ledgers of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random, wall_clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._writes = BatchingStore(store)
        self._rng = rng
        self._wall_clock_ms = wall_clock_ms

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the metadata service, as far as is known."""
        return self._store.session_state not in _AWAY

    async def until_connected(self) -> None:
        """Wait while there is no connection to the metadata service."""
        is_over = asyncio.Event()

        def look(_state: SessionState | None = None) -> None:
            if self.is_connected:
                is_over.set()

        cancel = self._store.on_session(look)
        try:
            look()
            await is_over.wait()
        finally:
            cancel()

    async def create(self, metadata: LedgerMetadata, *, is_chosen: bool = False) -> Version:
        """Store a new ledger and return its version; the creation token decides an unknown outcome.
        `is_chosen`: the client chose the id instead of allocating it; such an id is never used
        again.

        Raises NodeExistsError when another ledger has this id (the error's path is the ledger's),
        when a client chose the id for a ledger that was deleted since (`chosen_id_path`), or when a
        chosen id may have been allocated before (LEDGER_IDS). Raises ValueTooLargeError, and
        StoreUnavailableError when nothing was written.
        """
        path, chosen = ledger_path(metadata.ledger_id), chosen_id_path(metadata.ledger_id)
        create = Create(path, encode_ledger_metadata(metadata))
        # Creating and removing the node in one step succeeds only if no client chose the id.
        operations: list[Operation] = [Create(chosen, b""), Delete(chosen, FIRST_VERSION), create]

        async def attempt(_unknown_count: int) -> Version:
            nonlocal operations
            if is_chosen:
                counter = await self._check_of_counter(metadata.ledger_id)
                operations = [create, Create(chosen, b""), counter]
            while True:
                try:
                    await self._store.multi(operations)
                except NodeNotFoundError:
                    await self._make_parents(path, chosen)
                    continue
                except NodeExistsError:
                    if not await self._is_ours(metadata):
                        raise
                return FIRST_VERSION

        # A conflict: ids were allocated meanwhile.
        return await until_certain(self._rng, attempt, again=(VersionConflictError,))

    async def get(
        self, ledger_id: LedgerId, *, fresh: bool = False, agreed: bool = False
    ) -> tuple[LedgerMetadata, Version]:
        """Read a ledger; `fresh` and `agreed` as for `MetadataStore.get`.

        Raises NodeNotFoundError, MetadataFormatError.
        """
        path = ledger_path(ledger_id)
        stored = await self._store.get(path, fresh=fresh, agreed=agreed)
        metadata = decode_ledger_metadata(stored.value, path)
        if metadata.ledger_id != ledger_id:
            raise MetadataFormatError(path, f"it describes ledger {metadata.ledger_id}")
        return metadata, stored.version

    async def compare_and_set(self, metadata: LedgerMetadata, expected: Version) -> Version:
        """Store a change of the value that was read at `expected`, and return the new version (rule
        1.3).

        Repeats until the outcome is certain or the call is cancelled; a cancelled call may have
        been applied, or may still be. Raises VersionConflictError when another value was stored,
        NodeNotFoundError when the ledger is deleted, ValueTooLargeError.
        """
        path = ledger_path(metadata.ledger_id)
        value = encode_ledger_metadata(metadata)
        backoff = Backoff(self._rng)
        is_unknown = False
        while True:
            try:
                return await self._writes.compare_and_set(path, value, expected)
            except (OutcomeUnknownError, StoreUnavailableError):
                is_unknown = True
            except VersionConflictError:
                if not is_unknown:
                    raise
            version = await self._applied_version(metadata, expected, backoff)
            if version is not None:
                return version
            await asyncio.sleep(backoff.next_s())  # the old version proves nothing: repeat

    async def delete(self, ledger_id: LedgerId, *, guard: Sequence[Operation] = ()) -> bool:
        """Remove a ledger and record it in the deletion feed, in one step. Returns False if it did
        not exist.

        Repeats until the ledger is certainly gone or the call is cancelled. With `guard`, deletes
        only if these operations apply in the same step; raises VersionConflictError otherwise.
        """
        path = ledger_path(ledger_id)
        guarded = [operation.path for operation in guard]
        backoff = Backoff(self._rng)
        was_there = False
        while True:
            try:
                stored = await self._store.get(path, fresh=True)
                was_there = True
                await self._delete(ledger_id, path, stored.version, guard)
                await self._drop_empty_parents(path)
                return True
            except NodeNotFoundError as error:
                if error.path == path:
                    return was_there
                if error.path in guarded:
                    raise VersionConflictError(error.path, FIRST_VERSION) from error
                await self._make_shard(ledger_id)
            except VersionConflictError as error:
                if error.path in guarded:
                    raise
                await asyncio.sleep(backoff.next_s())
            except OutcomeUnknownError:
                await asyncio.sleep(backoff.next_s())
            except StoreUnavailableError:
                if not was_there:
                    raise
                await asyncio.sleep(backoff.next_s())

    async def list_ledger_ids(self, start: LedgerId = FIRST_LEDGER_ID) -> AsyncIterator[LedgerId]:
        """Stream the ids from `start` on, in order. Holds one node's children per level in memory.

        The stream may or may not include a ledger that is created or deleted at the same time.
        """
        async for names in self._walk((), level_names(start)):
            ledger_id = ledger_id_of(names)
            if ledger_id is not None:
                yield ledger_id

    def watch(self, ledger_id: LedgerId, callback: WatchCallback) -> Cancel:
        """Call back after each change of a ledger; as `MetadataStore.watch_value`."""
        return self._store.watch_value(ledger_path(ledger_id), callback)

    async def _check_of_counter(self, ledger_id: LedgerId) -> Check:
        """Return an operation that fails once more ids are allocated than now. Raises
        NodeExistsError if the id is among those that may have been allocated and used (rule 10.2).
        """
        while True:
            stored = await find(self._store, LEDGER_IDS)
            if stored is None:
                with contextlib.suppress(NodeExistsError, OutcomeUnknownError):
                    await self._store.create(LEDGER_IDS, pack_block(LEDGER_IDS, FIRST_ID))
                continue
            free = unpack_block(LEDGER_IDS, stored.value, FIRST_ID)
            if not FIRST_ID <= ledger_id < free:
                return Check(LEDGER_IDS, stored.version)
            for path in (ledger_path(ledger_id), chosen_id_path(ledger_id)):
                if await find(self._store, path) is not None:
                    raise NodeExistsError(path)
            raise NodeExistsError(LEDGER_IDS)

    async def _is_ours(self, metadata: LedgerMetadata) -> bool:
        try:
            stored, _ = await self.get(metadata.ledger_id, fresh=True)
        except NodeNotFoundError:  # deleted since
            return False
        return stored.creation_token == metadata.creation_token

    async def _applied_version(
        self, metadata: LedgerMetadata, expected: Version, backoff: Backoff
    ) -> Version | None:
        """Return the version of our change if it was applied, None while the old version is still
        there.
        """
        stored, version = await self._read_back(metadata.ledger_id, backoff)
        if version == expected:
            return None
        if stored.update_token == metadata.update_token:
            return version
        raise VersionConflictError(ledger_path(metadata.ledger_id), expected)

    async def _read_back(
        self, ledger_id: LedgerId, backoff: Backoff
    ) -> tuple[LedgerMetadata, Version]:
        while True:
            try:
                return await self.get(ledger_id, fresh=True)
            except StoreUnavailableError:
                await asyncio.sleep(backoff.next_s())

    async def _delete(
        self, ledger_id: LedgerId, path: str, version: Version, guard: Sequence[Operation]
    ) -> None:
        feed_entry = deletion_of(ledger_id, self._wall_clock_ms())
        try:
            await self._store.multi([*guard, Delete(path, version), feed_entry])
        except NodeExistsError:  # recorded already, for an earlier ledger with the same id
            await self._store.multi([*guard, Delete(path, version)])

    async def _make_shard(self, ledger_id: LedgerId) -> None:
        with contextlib.suppress(NodeExistsError, OutcomeUnknownError):
            await self._store.create(deletion_shard_path(ledger_id % DELETION_SHARDS), b"")

    async def _make_parents(self, *paths: str) -> None:
        """Make the parents of new nodes. A deletion may remove them again: the caller repeats."""
        for path in paths:
            try:
                await self._store.create(path.rpartition("/")[0], b"")
            except (NodeExistsError, NodeNotFoundError, OutcomeUnknownError):
                continue

    async def _drop_empty_parents(self, path: str) -> None:
        """Remove the parent levels that are now empty; a later creation makes them again."""
        for _ in range(len(LEVEL_DIGITS) - 1):
            path = path.rpartition("/")[0]
            try:
                await self._store.delete(path, FIRST_VERSION)
            except (
                NodeNotFoundError,
                NodeNotEmptyError,
                OutcomeUnknownError,
                StoreUnavailableError,
            ):
                return

    async def _walk(
        self, above: tuple[str, ...], start: tuple[str, ...]
    ) -> AsyncIterator[tuple[str, ...]]:
        level = len(above)
        for name in await self._store.children("/".join((LEDGERS, *above))):
            names = (*above, name)
            if not is_level_name(level, name) or names < start[: level + 1]:
                continue
            if level + 1 == len(LEVEL_DIGITS):
                yield names
            else:
                async for path in self._walk(names, start):
                    yield path
