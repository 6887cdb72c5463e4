"""Store of a cluster's chains: ordered lists of ledgers, changed by compare-and-set alone.

Leaves the meaning of a chain to its writers, its creation to `metadata.ledgers.chain_creation`, its
removal to `metadata.ledgers.chain_life`, and its ledgers to `metadata.ledgers.ledger_store`.

Invariants: a link, the head that counts it and the batch that it represents are written in one
multi, or not at all; only the token decides a publication whose outcome is unknown; a ledger that
was deleted in one step with a change of the head (`guard`) is never linked; a change of a chain
takes no effect on another chain of the same name.

Source: Spark design, "Writing: exactly once"; protocol rules 1.2-1.3; metadata design, "Ledgers"
and "Storms".
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    ApplicationTakenError,
    ChainNotFoundError,
    LedgersCollectedError,
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken, Version
from metadata.ledgers.chain import (
    APPLIED_CODEC,
    HEAD_CODEC,
    LINK_CODEC,
    NO_BATCH,
    AppliedBatch,
    ChainHead,
    ChainLink,
    LinkedLedger,
    check_chain_name,
)
from metadata.ledgers.chain_creation import chain_creation_token, create_chain
from metadata.ledgers.chain_life import ChainLife, chain_life, is_over, remove_deleted
from metadata.paths import (
    CHAINS,
    LINK_LEVEL_DIGITS,
    chain_application_path,
    chain_link_path,
    chain_links_path,
    chain_path,
    ledger_path,
)
from metadata.store.interface import (
    Cancel,
    CompareAndSet,
    Create,
    MetadataStore,
    Operation,
    WatchCallback,
    find,
)
from metadata.store.tree_deletion import drop
from metadata.store.value_changes import ATTEMPTS_MAX, until_certain

LINK_READS_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Publication:
    """Ledgers that one publication is to make visible."""

    ledgers: tuple[LinkedLedger, ...]
    application: str = ""
    batch: int = NO_BATCH
    query: str = ""
    """Identity of the query that numbers the application's batches."""
    replaces: bool = False
    """Whether all earlier links are removed from the chain in the same step."""


@dataclass(frozen=True, slots=True)
class Published:
    """Index of a publication's link. `is_new` is False if an earlier call had linked the batch."""

    index: int
    is_new: bool


class _Outcome(Enum):
    """Outcome of a multi that was sent once."""

    APPLIED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class ChainStore:
    """The chains of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random, wall_clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._rng = rng
        self._wall_clock_ms = wall_clock_ms

    async def create(self, name: str) -> None:
        """Create an empty chain. Raises ChainExistsError, InvalidChainNameError."""
        await create_chain(self._store, name, self._rng)

    async def creation_token(self, name: str) -> UpdateToken:
        """Return the token that identifies this chain among those of its name; NO_TOKEN if there is
        no such chain.

        Read it before what it is to identify: a chain that is created in between is then noticed.
        """
        return await chain_creation_token(self._store, name)

    async def head(self, name: str) -> tuple[ChainHead, Version]:
        """Read the current head of a chain. Raises ChainNotFoundError."""
        head, version = await self._any_head(name)
        if head.is_deleted:
            raise ChainNotFoundError(name)
        return head, version

    async def links(
        self, name: str, first_index: int, end_index: int
    ) -> list[tuple[int, ChainLink | None]]:
        """Read the links `first_index`..`end_index` - 1, in order; None for a link that is gone."""
        read: list[tuple[int, ChainLink | None]] = []
        for start in range(first_index, end_index, LINK_READS_AT_ONCE):
            indices = range(start, min(start + LINK_READS_AT_ONCE, end_index))
            links = await asyncio.gather(*[self._link(name, index) for index in indices])
            read += zip(indices, links, strict=True)
        return read

    async def applied(self, name: str, application: str) -> AppliedBatch | None:
        """Return the last linked batch of an application, or None."""
        applied = await self._applied(name, application)
        return None if applied is None else applied[0]

    async def publish(self, name: str, publication: Publication) -> Published:
        """Link ledgers at the end of a chain, exactly once.

        A batch that is not above the application's last one is linked already: then nothing is
        written. Repeats until the outcome is certain or the call is cancelled; a cancelled call may
        have been applied or may still be. Raises ChainNotFoundError, also for a chain that is
        deleted during the call and created again; ApplicationTakenError when another query recorded
        a batch of the application; LedgersCollectedError when a ledger is gone or may be;
        ValueTooLargeError; StoreUnavailableError when nothing was written.
        """
        link = ChainLink(
            publication.ledgers,
            self._wall_clock_ms(),
            self._token(),
            publication.application,
            publication.batch,
        )
        backoff = Backoff(self._rng)
        life = await self.life(name)
        tried_index: int | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                head, version = await self.head(name)
                if tried_index is not None and head.next_index > tried_index:
                    stored = await self._link(name, tried_index)
                    if stored is not None and stored.token == link.token:
                        return Published(tried_index, is_new=True)
                    if stored is None:
                        raise MetadataError(
                            f"link {tried_index} of chain {name!r} was removed again"
                        )
                    tried_index = None
                applied = await self._applied(name, link.application) if link.application else None
                if applied is not None and _is_linked(name, applied[0], publication):
                    return Published(applied[0].index, is_new=False)
                changed = head.with_link(link, replaces=publication.replaces), version
                at = None if applied is None else applied[1]
                operations = self._operations(name, changed, link, publication.query, at)
                await self._require_ledgers(link)
                outcome = await self._try(name, life, operations)
                if outcome is _Outcome.APPLIED:
                    return Published(head.next_index, is_new=True)
                if outcome is _Outcome.UNKNOWN:
                    tried_index = head.next_index
            except StoreUnavailableError:
                if tried_index is None:
                    raise
            await asyncio.sleep(backoff.next_s())
        raise MetadataError(
            f"chain {name!r} kept changing during {ATTEMPTS_MAX} attempts: try again"
        )

    async def life(self, name: str) -> ChainLife:
        """Return checks that make a multi fail once this chain was deleted. Read them before what
        the multi is based on.
        """
        return await chain_life(self._store, check_chain_name(name))

    async def guard(self, name: str) -> tuple[ChainHead, list[Operation]]:
        """Return the head, and operations that make a multi fail unless that head is still the
        current one. Applying them changes the head's version, so a concurrent publication that read
        the head must read it again.
        """
        life = await self.life(name)
        head, version = await self.head(name)
        path = chain_path(name)
        kept = CompareAndSet(path, HEAD_CODEC.pack(path, head.with_token(self._token())), version)
        return head, [kept, *life]

    async def trim(self, name: str, first_index: int) -> ChainHead:
        """Remove the links below `first_index` from the chain; return the new head. `drop_trimmed`
        deletes their nodes.
        """
        return await self._change(
            name, lambda head, token: head.with_first_index(first_index, token)
        )

    async def refuse_older(self, name: str, created_ms: int) -> ChainHead:
        """Refuse from now on to link ledgers created before a time; return the new head.
        Afterwards, unlinked ledgers older than that may be deleted.
        """
        return await self._change(
            name, lambda head, token: head.with_collected_before(created_ms, token)
        )

    async def service_now_ms(self, name: str) -> int | None:
        """Write to a chain, and return the time of the write by the clock of the metadata service.
        Where the service does not say times, write nothing and return None. Raises
        ChainNotFoundError.
        """
        path = chain_path(check_chain_name(name))
        stored = await find(self._store, path)
        if stored is None or stored.modified_ms is None:
            return None
        await self._change(name, ChainHead.with_token)
        stored = await find(self._store, path)
        return None if stored is None else stored.modified_ms

    async def drop_trimmed(self, name: str, first_index: int, life: ChainLife) -> None:
        """Delete the nodes of trimmed links below an index. Raises ChainNotFoundError if the chain
        is deleted meanwhile.
        """
        async for index in self._stored_indices(chain_links_path(name)):
            if index >= first_index:
                return
            try:
                await drop(self._store, chain_link_path(name, index), self._rng, checks=life)
            except NodeNotFoundError as error:
                raise ChainNotFoundError(name) from error

    async def delete(self, name: str) -> None:
        """Delete a chain but not its ledgers; complete an interrupted deletion. Nothing can be
        published once this begins. Raises ChainNotFoundError.
        """
        await self._change(name, ChainHead.with_deletion, also_deleted=True)
        await remove_deleted(self._store, name, self._rng)

    async def names(self) -> list[str]:
        """Return the names of all chains, sorted."""
        return await self._store.children(CHAINS, fresh=True)

    def watch(self, name: str, callback: WatchCallback) -> Cancel:
        """Call back after each change of a chain's head; as `MetadataStore.watch_value`."""
        return self._store.watch_value(chain_path(check_chain_name(name)), callback)

    # Inside

    async def _any_head(self, name: str) -> tuple[ChainHead, Version]:
        path = chain_path(check_chain_name(name))
        stored = await find(self._store, path)
        if stored is None:
            raise ChainNotFoundError(name)
        return HEAD_CODEC.unpack(path, stored.value), stored.version

    async def _require_ledgers(self, link: ChainLink) -> None:
        """Check that every ledger of a link exists, in a state not older than the head that was
        read. A deletion of a ledger changes the head in the same step, so the multi then fails.
        """
        for start in range(0, len(link.ledgers), LINK_READS_AT_ONCE):
            some = link.ledgers[start : start + LINK_READS_AT_ONCE]
            paths = [ledger_path(linked_ledger.ledger_id) for linked_ledger in some]
            values = await asyncio.gather(*map(self._store.get, paths), return_exceptions=True)
            for ledger, value in zip(some, values, strict=True):
                if isinstance(value, NodeNotFoundError):
                    raise LedgersCollectedError(ledger.ledger_id)
                if isinstance(value, BaseException):
                    raise value

    async def _change(
        self,
        name: str,
        changed: Callable[[ChainHead, UpdateToken], ChainHead],
        *,
        also_deleted: bool = False,
    ) -> ChainHead:
        """Change a head by compare-and-set, whatever its version, until the outcome is certain."""
        path, token = chain_path(name), self._token()
        life = await self.life(name)

        async def attempt(_unknown_count: int) -> ChainHead:
            head, version = await (self._any_head if also_deleted else self.head)(name)
            if head.token == token:
                return head
            wanted = changed(head, token)
            change = CompareAndSet(path, HEAD_CODEC.pack(path, wanted), version)
            try:
                await self._store.multi([change, *life])
            except NodeNotFoundError as error:  # the head and the life end together
                raise ChainNotFoundError(name) from error
            return wanted

        return await until_certain(
            self._rng, attempt, again=(VersionConflictError,), what=f"chain {name!r}"
        )

    async def _link(self, name: str, index: int) -> ChainLink | None:
        path = chain_link_path(name, index)
        stored = await find(self._store, path, fresh=False)
        return None if stored is None else LINK_CODEC.unpack(path, stored.value)

    async def _applied(self, name: str, application: str) -> tuple[AppliedBatch, Version] | None:
        path = chain_application_path(name, application)
        stored = await find(self._store, path)
        return (
            None if stored is None else (APPLIED_CODEC.unpack(path, stored.value), stored.version)
        )

    def _operations(
        self,
        name: str,
        changed: tuple[ChainHead, Version],
        link: ChainLink,
        query: str,
        applied: Version | None,
    ) -> list[Operation]:
        """Return the operations of the multi that links: the head, the link, and the application's
        batch.
        """
        head, version = changed
        index = head.next_index - 1
        path, link_path = chain_path(name), chain_link_path(name, index)
        operations: list[Operation] = [
            CompareAndSet(path, HEAD_CODEC.pack(path, head), version),
            Create(link_path, LINK_CODEC.pack(link_path, link)),
        ]
        if link.application:
            path = chain_application_path(name, link.application)
            batch = AppliedBatch(link.application, link.batch, index, query)
            value = APPLIED_CODEC.pack(path, batch)
            operations.append(
                Create(path, value) if applied is None else CompareAndSet(path, value, applied)
            )
        return operations

    async def _try(self, name: str, life: ChainLife, operations: Sequence[Operation]) -> "_Outcome":
        """Send a multi once. Raises StoreUnavailableError when nothing was written."""
        try:
            await self._store.multi([*operations, *life])
        except OutcomeUnknownError:
            return _Outcome.UNKNOWN
        except (VersionConflictError, NodeExistsError):
            return _Outcome.REFUSED  # the stored state decides
        except NodeNotFoundError as error:
            if is_over(life, error):
                raise ChainNotFoundError(name) from error
            await self._make_parents(name, operations)
            return _Outcome.REFUSED
        return _Outcome.APPLIED

    async def _make_parents(self, name: str, operations: Sequence[Operation]) -> None:
        """Create the nodes between the chain and the nodes to create; only the first of many links
        needs it. The chain's own node is never created here: it may have been deleted.
        """
        above = chain_path(name)
        for operation in operations:
            if not isinstance(operation, Create):
                continue
            levels = operation.path.removeprefix(f"{above}/").split("/")[:-1]
            for depth in range(1, len(levels) + 1):
                path = "/".join((above, *levels[:depth]))
                try:
                    await self._store.create(path, b"", make_parents=False)
                except (NodeExistsError, OutcomeUnknownError):
                    continue
                except NodeNotFoundError:
                    return  # the next attempt finds which node is gone

    async def _stored_indices(self, path: str, above: str = "") -> AsyncIterator[int]:
        """Stream the indices of the links that have a node, in order."""
        for name in await self._store.children(path, fresh=True):
            if len(above) + len(name) == sum(LINK_LEVEL_DIGITS):
                yield int(above + name)
                continue
            async for index in self._stored_indices(f"{path}/{name}", above + name):
                yield index

    def _token(self) -> UpdateToken:
        return UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))


def _is_linked(name: str, applied: AppliedBatch, wanted: Publication) -> bool:
    """Return whether a batch is not above the application's last one. Raises
    ApplicationTakenError.
    """
    if applied.query != wanted.query:
        raise ApplicationTakenError(name, applied.application, applied.query, applied.batch)
    return applied.batch >= wanted.batch
