"""Chains: ordered, shared lists of published ledgers.

Leaves the list itself to `metadata.ledgers.chain_store`.

A job writes its ledgers, closes them, and publishes them together in one step; ledgers that are
never published are collected later. Each `batch` of an `application` is published at most once.

Invariants: no ledger is deleted that a chain links or may still link; a chain never goes back.

Source: Spark design, "Writing: exactly once".
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Final

from ledger_client.client_services import ClientServices
from ledger_client.client_session import ClientSession
from ledger_client.errors import (
    ChainExistsError,
    ChainNotFoundError,
    LedgerNotFoundError,
    MetadataConflictError,
)
from ledger_client.handle import Handle, LoopGuard, in_own_loop
from ledger_client.info import LedgerInfo
from ledger_client.ledger_calls import LedgerCalls, LedgerLists
from ledger_client.metadata_failures import metadata_call
from ledger_client.observability import Observer
from metadata.errors import RestoreUnacceptedError
from metadata.ids import LedgerId
from metadata.ledgers.chain import (
    CHAIN_NAME,
    LEDGERS_PER_LINK_MAX,
    NO_BATCH,
    ChainHead,
    ChainLink,
    LinkedLedger,
    check_chain_name,
)
from metadata.ledgers.chain_life import ChainLife
from metadata.ledgers.chain_store import Publication, Published
from metadata.paths import ledger_path
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import find

WITHDRAWALS_MAX: Final = 1_000
"""Maximum number of attempts to delete one ledger; most attempts fail because another writer
changed the chain.
"""
LINKS_PER_STEP: Final = 250
"""Number of links read in one step."""


@dataclass(frozen=True, slots=True)
class ChainInfo:
    """Head of a chain at one moment: its links are first_index to next_index - 1."""

    name: str
    first_index: int
    next_index: int
    creation_token: bytes
    """Identifies the chain: one that is deleted and created again under its name has another
    token.
    """

    @classmethod
    def of(cls, name: str, head: ChainHead, creation_token: bytes) -> "ChainInfo":
        """Return the public view of a head."""
        return cls(name, head.first_index, head.next_index, creation_token)


class Chain(Handle):
    """One chain, by name; created by `LedgerClient.chain`. Every call takes `timeout`, in
    seconds.
    """

    def __init__(self, name: str, session: ClientSession) -> None:
        self.name = check_chain_name(name)
        self._session = session

    @property
    def _own_loop(self) -> LoopGuard:
        return self._session.own_loop

    def _description(self) -> str:  # type: ignore[explicit-override]
        return f"{self.name!r} of {self._session.description}"

    @property
    def custom_metadata(self) -> dict[str, str]:
        """Custom metadata for a ledger to be published in this chain: the ledger is collected if it
        is never published.
        """
        return {CHAIN_NAME: self.name}

    async def create(self, *, exist_ok: bool = False, timeout: float | None = None) -> None:
        """Create an empty chain. Raises ChainExistsError if it exists, unless `exist_ok`."""
        services = await self._session.services()
        try:
            async with self._call(services, timeout):
                await services.chains.create(self.name)
        except ChainExistsError:
            if not exist_ok:
                raise

    async def info(self, *, timeout: float | None = None) -> ChainInfo:
        """Return the current head of the chain. Raises ChainNotFoundError."""
        services = await self._session.services()
        async with self._call(services, timeout):
            token = await services.chains.creation_token(self.name)
            head, _ = await services.chains.head(self.name)
        return ChainInfo.of(self.name, head, token)

    @in_own_loop
    async def links(
        self, first_index: int, end_index: int, *, timeout: float | None = None
    ) -> AsyncGenerator[tuple[int, ChainLink | None], None]:
        """Stream the links `first_index`..`end_index` - 1 with their indices; None for a link that
        was collected. `timeout` limits each step.
        """
        pages = self.link_pages(first_index, end_index, timeout=timeout)
        async with aclosing(pages):
            async for page in pages:
                for link in page:
                    yield link

    @in_own_loop
    async def link_pages(
        self, first_index: int, end_index: int, *, timeout: float | None = None
    ) -> AsyncGenerator[list[tuple[int, ChainLink | None]], None]:
        """Stream the same as `links`, in lists."""
        services = await self._session.services()
        for start in range(first_index, end_index, LINKS_PER_STEP):
            end = min(start + LINKS_PER_STEP, end_index)
            async with self._call(services, timeout):
                page = await services.chains.links(self.name, start, end)
            yield page

    async def publish(
        self,
        ledgers: Iterable[LedgerInfo | LinkedLedger],
        *,
        application: str = "",
        batch: int | None = None,
        query: str = "",
        replaces: bool = False,
        timeout: float | None = None,
    ) -> Published:
        """Link ledgers, in order, as one link at the end of the chain: all of them, or none.

        A batch that is not above the last one of its application was published before: then nothing
        happens. An application belongs to the `query` that published its first batch, so the
        numbers of another one are never taken for its numbers. With `replaces`, all earlier links
        are removed in the same step. When the time is up, the outcome may be unknown; repeating the
        call with the same application and batch is safe. Raises ValueError, ChainNotFoundError,
        ApplicationTakenError, LedgersCollectedError, MetadataTooLargeError.
        """
        linked = tuple(_linked(ledger) for ledger in ledgers)
        if (batch is None) != (not application):
            raise ValueError("give both an application and a batch, or neither")
        if batch is not None and batch < 0:
            raise ValueError(f"batch {batch} is negative: use 0 or more")
        if len(linked) > LEDGERS_PER_LINK_MAX:
            raise ValueError(
                f"{len(linked)} ledgers are too many: publish at most {LEDGERS_PER_LINK_MAX}"
            )
        number = NO_BATCH if batch is None else batch
        wanted = Publication(linked, application, number, query, replaces)
        services = await self._session.services()
        async with self._call(services, timeout):
            return await services.chains.publish(self.name, wanted)

    async def last_batch(self, application: str, *, timeout: float | None = None) -> int | None:
        """Return the last published batch of an application, or None."""
        services = await self._session.services()
        async with self._call(services, timeout):
            applied = await services.chains.applied(self.name, application)
        return None if applied is None else applied.batch

    async def withdraw(
        self, ledger_ids: Iterable[int], *, since_index: int, timeout: float | None = None
    ) -> list[LedgerId]:
        """Delete ledgers that are not linked, and make sure that no running call links them; return
        the deleted ones.

        `since_index` is a `next_index` of the chain from before they could have been linked.
        `timeout` limits each step.
        """
        services = await self._session.services()
        deleted: list[LedgerId] = []
        for ledger_id in map(LedgerId, ledger_ids):
            for _ in range(WITHDRAWALS_MAX):
                async with self._call(services, timeout):
                    head, guard = await services.chains.guard(self.name)
                is_other = since_index > head.next_index  # it was created again since
                start = head.first_index if is_other else max(since_index, head.first_index)
                if ledger_id in await self._linked_ids(start, head.next_index, timeout):
                    break
                try:
                    async with self._call(services, timeout):
                        if await services.ledgers.delete(ledger_id, guard=guard):
                            deleted.append(ledger_id)
                    break
                except MetadataConflictError:
                    continue  # something was published: read again
        return deleted

    async def trim(self, first_index: int, *, timeout: float | None = None) -> ChainInfo:
        """Remove the links below `first_index` from the chain; `collect` deletes their ledgers."""
        services = await self._session.services()
        async with self._call(services, timeout):
            token = await services.chains.creation_token(self.name)
            head = await services.chains.trim(self.name, first_index)
        return ChainInfo.of(self.name, head, token)

    async def collect(
        self,
        grace_s: float,
        *,
        on_deleted: Callable[[LedgerId], None] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete the ledgers that were written for this chain more than `grace_s` seconds ago and
        are not linked in it; return how many. Reads the metadata of every ledger of the cluster.

        Older ledgers can no longer be linked afterwards, so a grace period longer than any job
        takes keeps every job's ledgers. Ages are by the clock of the metadata service, so no host's
        clock makes others lose ledgers; a ledger from a host whose clock is slow is kept, but may
        not be linked any more. Behind a gateway, ages are by the clocks of the hosts: add what
        these may differ by. `timeout` limits each step. Raises
        ValueError, ChainNotFoundError, also for a chain that is deleted meanwhile and created
        again; MetadataRefusedError while a restore of the metadata is not accepted.
        """
        if grace_s < 0:
            raise ValueError(f"a grace period of {grace_s} s is negative: use 0 or more")
        services = await self._session.services()
        async with self._call(services, timeout):
            if await is_unaccepted(services.store):
                raise RestoreUnacceptedError(services.store.address)
            life = await services.chains.life(self.name)
        async with self._call(services, timeout):
            now_ms = await services.chains.service_now_ms(self.name)
            now_ms = services.wall_clock_ms() if now_ms is None else now_ms
            before_ms = max(0, now_ms - int(grace_s * 1000))
            head = await services.chains.refuse_older(self.name, before_ms)
        linked = await self._linked_ids(head.first_index, head.next_index, timeout)
        count = 0
        limit = self._session.limit(timeout)
        async for page in LedgerLists(services).all(LedgerId(0), limit):
            for info in page:
                is_ours = info.metadata.get(CHAIN_NAME) == self.name
                is_old = info.created_ms < head.collected_before_ms
                if not (is_ours and is_old) or info.id in linked:
                    continue
                if await self._is_young(services, info.id, head.collected_before_ms, timeout):
                    continue  # the clock of the host that created it is slow
                if await self._delete(services, info.id, life, limit):
                    count += 1
                    if on_deleted is not None:
                        _call(on_deleted, info.id, services.observer)
        async with self._call(services, timeout):
            await services.chains.drop_trimmed(self.name, head.first_index, life)
        return count

    async def wait_changed(self, known: ChainInfo, *, timeout: float) -> ChainInfo:
        """Return once the chain differs from `known`, or the time is up. Raises ChainNotFoundError,
        MetadataUnavailableError.
        """
        services = await self._session.services()
        changed = asyncio.Event()
        cancel = services.chains.watch(self.name, changed.set)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            while True:
                changed.clear()
                now = await self.info()
                if now != known or loop.time() >= deadline:
                    return now
                try:
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                except TimeoutError:
                    return now
        finally:
            cancel()

    async def delete(self, *, timeout: float | None = None) -> None:
        """Delete the chain but not its ledgers: nothing can be published in it from the start of
        the call on. Raises ChainNotFoundError.
        """
        services = await self._session.services()
        async with self._call(services, timeout):
            await services.chains.delete(self.name)

    # Internals

    async def _linked_ids(
        self, first_index: int, end_index: int, timeout: float | None
    ) -> frozenset[LedgerId]:
        ledger_ids: list[LedgerId] = []
        async for _, link in self.links(first_index, end_index, timeout=timeout):
            if link is not None:
                ledger_ids += [ledger.ledger_id for ledger in link.ledgers]
        return frozenset(ledger_ids)

    async def _is_young(
        self, services: ClientServices, ledger_id: LedgerId, before_ms: int, timeout: float | None
    ) -> bool:
        """Return whether a ledger is not older than a time by the clock of the service."""
        async with self._call(services, timeout):
            stored = await find(services.store, ledger_path(ledger_id))
        return stored is not None and (stored.created_ms or 0) >= before_ms

    async def _delete(
        self, services: ClientServices, ledger_id: LedgerId, life: ChainLife, limit: float
    ) -> bool:
        """Delete a ledger unless the chain is deleted; return whether this call deleted it."""
        try:
            await LedgerCalls(services).delete(ledger_id, limit, guard=life)
        except LedgerNotFoundError:
            return False
        except MetadataConflictError as error:
            text = f"chain {self.name!r} was deleted while its unlinked ledgers were collected"
            raise ChainNotFoundError(
                f"{text}: collect them in the chain of that name now"
            ) from error
        return True

    def _call(
        self, services: ClientServices, timeout: float | None
    ) -> AbstractAsyncContextManager[None]:
        limit = self._session.limit(timeout)
        return metadata_call(
            f"a call of chain {self.name!r}", services.store.address, limit, outcome="unknown"
        )


def _call(on_deleted: Callable[[LedgerId], None], ledger_id: LedgerId, observer: Observer) -> None:
    try:
        on_deleted(ledger_id)
    except Exception as error:  # noqa: BLE001 - it is reported, and the collection continues
        observer.note_callback_failed("on_deleted", error)


def _linked(info: LedgerInfo | LinkedLedger) -> LinkedLedger:
    if isinstance(info, LinkedLedger):
        return info
    return LinkedLedger(info.id, info.created_ms, info.last_entry_id, info.length)
