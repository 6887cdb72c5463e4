"""Blocking client, without `async`: every call blocks until it is done. Usable from any thread.

Leaves all work to the asynchronous client, which runs on one loop in one background thread
(`sync_loop`), and handles of ledgers to `sync_handles`.

Invariants: an object of the asynchronous client is used only on its loop; after a fork every call
of the child raises ClientClosedError.

Source: api design, "Client".
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain as joined
from ssl import SSLContext
from typing import Final, Self

from ledger_client import chains
from ledger_client import client as asynchronous
from ledger_client.bookies.placement import PlacementPolicy
from ledger_client.chains import ChainInfo
from ledger_client.config import ClientConfig
from ledger_client.encryption.keys import Encryption, StoredPayloads
from ledger_client.errors import ClientClosedError, LedgerError, MetadataUnavailableError
from ledger_client.handle import Handle
from ledger_client.info import LedgerInfo
from ledger_client.observability import ClientStats, EventCallback
from ledger_client.reading.many_ledgers import LedgerRange, RangePart
from ledger_client.reading.reader import LedgerReader as AsyncReader
from ledger_client.recovery.abandoned_recovery import AbandonedLedgers, AbandonedRecovered
from ledger_client.replication import Quorum
from ledger_client.sync_handles import LedgerReader, LedgerWriter
from ledger_client.sync_loop import BackgroundLoop, iterate
from ledger_client.writing.writer import LedgerWriter as AsyncWriter
from metadata.ids import LedgerId
from metadata.ledgers.chain import ChainLink, LinkedLedger
from metadata.ledgers.chain_store import Published
from metadata.ledgers.payload_encryption import PayloadEncryption

__all__ = ["Chain", "LedgerClient", "LedgerReader", "LedgerWriter", "Quorum"]


FOLLOW_STEP_S: Final = 30.0
RETRY_S: Final = 0.5
UNSEEN_MAX_S: Final = 60.0


class Chain(Handle):
    """One chain, by name: `ledger_client.Chain` for threads."""

    def __init__(self, background: BackgroundLoop, chain: chains.Chain) -> None:
        self._background = background
        self._chain = chain

    def _description(self) -> str:  # type: ignore[explicit-override]
        return f"over {self._chain!r}"

    @property
    def name(self) -> str:
        """The chain's name."""
        return self._chain.name

    @property
    def custom_metadata(self) -> dict[str, str]:
        """Custom metadata for a ledger to be published in this chain: the ledger is collected if it
        is never published.
        """
        return self._chain.custom_metadata

    def create(self, *, exist_ok: bool = False, timeout: float | None = None) -> None:
        """Create an empty chain."""
        self._background.run(self._chain.create(exist_ok=exist_ok, timeout=timeout))

    def info(self, *, timeout: float | None = None) -> ChainInfo:
        """Return the current head of the chain."""
        return self._background.run(self._chain.info(timeout=timeout))

    def links(
        self, first_index: int, end_index: int, *, timeout: float | None = None
    ) -> Iterator[tuple[int, ChainLink | None]]:
        """Yield the links `first_index`..`end_index` - 1 with their indices; None for a link that
        was collected.
        """
        pages = self._chain.link_pages(first_index, end_index, timeout=timeout)
        return joined.from_iterable(iterate(self._background, pages))

    def publish(
        self,
        ledgers: Iterable[LedgerInfo | LinkedLedger],
        *,
        application: str = "",
        batch: int | None = None,
        replaces: bool = False,
        timeout: float | None = None,
    ) -> Published:
        """Link ledgers as one link at the end of the chain: all of them, or none."""
        work = self._chain.publish(
            ledgers, application=application, batch=batch, replaces=replaces, timeout=timeout
        )
        return self._background.run(work)

    def last_batch(self, application: str, *, timeout: float | None = None) -> int | None:
        """Return the last published batch of an application, or None."""
        return self._background.run(self._chain.last_batch(application, timeout=timeout))

    def withdraw(
        self, ledger_ids: Iterable[int], *, since_index: int, timeout: float | None = None
    ) -> list[LedgerId]:
        """Delete ledgers that are not linked; return the deleted ones."""
        work = self._chain.withdraw(ledger_ids, since_index=since_index, timeout=timeout)
        return self._background.run(work)

    def trim(self, first_index: int, *, timeout: float | None = None) -> ChainInfo:
        """Remove the links below `first_index` from the chain."""
        return self._background.run(self._chain.trim(first_index, timeout=timeout))

    def collect(
        self,
        grace_s: float,
        *,
        on_deleted: Callable[[LedgerId], None] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete old ledgers that were written for this chain and are not linked in it."""
        work = self._chain.collect(grace_s, on_deleted=on_deleted, timeout=timeout)
        return self._background.run(work)

    def wait_changed(self, known: ChainInfo, *, timeout: float) -> ChainInfo:
        """Return once the chain differs from `known`, or the time is up."""
        return self._background.run(self._chain.wait_changed(known, timeout=timeout))

    def follow(self) -> "FollowedChain":
        """Read the chain now, and keep its head up to date in the background. Raises
        ChainNotFoundError.
        """
        return FollowedChain(self._background, self._chain, self.info())

    def delete(self, *, timeout: float | None = None) -> None:
        """Delete the chain but not its ledgers."""
        self._background.run(self._chain.delete(timeout=timeout))


class FollowedChain:
    """Head of a chain, kept up to date in the background so that reading it sends no request. Must
    be closed.
    """

    def __init__(self, background: BackgroundLoop, chain: chains.Chain, info: ChainInfo) -> None:
        self._chain = chain
        self._info = info
        self._failure: LedgerError | None = None
        self._following = background.start(self._follow())

    @property
    def info(self) -> ChainInfo:
        """The chain as last seen. Raises ChainNotFoundError once it is deleted, and
        MetadataUnavailableError once the metadata service has not answered for `UNSEEN_MAX_S`.
        """
        if self._failure is not None:
            raise self._failure.fresh()
        return self._info

    def close(self) -> None:
        """Stop following the chain."""
        self._following.cancel()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        seen = loop.time()
        while True:
            try:
                self._info = await self._chain.wait_changed(self._info, timeout=FOLLOW_STEP_S)
                self._failure, seen = None, loop.time()
            except MetadataUnavailableError as error:
                if loop.time() - seen > UNSEEN_MAX_S:
                    self._failure = error
                await asyncio.sleep(RETRY_S)
            except LedgerError as error:
                self._failure = error
                return


class LedgerClient(Handle):
    """Opens ledgers of one cluster: `ledger_client.LedgerClient` for threads."""

    def __init__(
        self,
        uri: str,
        *,
        config: ClientConfig | None = None,
        ssl: SSLContext | None = None,
        credentials: bytes = b"",
        on_event: EventCallback | None = None,
        policy: PlacementPolicy | None = None,
    ) -> None:
        """Create a client as the asynchronous one does; `on_event` is called in the background
        thread.
        """
        self._begin(
            asynchronous.LedgerClient(
                uri,
                config=config,
                ssl=ssl,
                credentials=credentials,
                on_event=on_event,
                policy=policy,
            )
        )

    @classmethod
    def over(cls, make: Callable[[], asynchronous.LedgerClient]) -> Self:
        """Wrap the asynchronous client that `make` returns; `make` is called on the background
        loop.
        """
        client = cls.__new__(cls)
        client._background = BackgroundLoop()  # noqa: SLF001 - same class

        async def made() -> asynchronous.LedgerClient:
            return make()

        client._client = client._background.run(made())  # noqa: SLF001
        return client

    def create_ledger(
        self,
        quorum: Quorum,
        *,
        ledger_id: int | None = None,
        digest: str = "crc32c",
        password: bytes = b"",
        metadata: Mapping[str, str | bytes] | None = None,
        encryption: Encryption | PayloadEncryption | None = None,
        timeout: float | None = None,
    ) -> LedgerWriter:
        """Create a ledger and open it for writing."""
        opening = self._client.create_ledger(
            quorum,
            ledger_id=ledger_id,
            digest=digest,
            password=password,
            metadata=metadata,
            encryption=encryption,
            timeout=timeout,
        )

        async def opened() -> AsyncWriter:
            return await opening

        return LedgerWriter(self._background, self._background.run(opened()))

    def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        encryption: Encryption | StoredPayloads | None = None,
        timeout: float | None = None,
    ) -> LedgerReader:
        """Open a ledger for reading; never fences."""
        opening = self._client.open_ledger(
            ledger_id, password=password, encryption=encryption, timeout=timeout
        )

        async def opened() -> AsyncReader:
            return await opening

        return LedgerReader(self._background, self._background.run(opened()))

    def recover_ledger(
        self, ledger_id: int, *, password: bytes = b"", timeout: float | None = None
    ) -> LedgerInfo:
        """Fence a ledger's writer, recover the confirmed entries, and close the ledger."""
        work = self._client.recover_ledger(ledger_id, password=password, timeout=timeout)
        return self._background.run(work)

    def recover_ledger_unclean(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        timeout: float | None = None,
        even_if_writer_lives: bool = False,
    ) -> LedgerInfo:
        """Recover a ledger in in-sync mode, giving up what no replica can return (rule 11.6)."""
        work = self._client.recover_ledger_unclean(
            ledger_id,
            password=password,
            timeout=timeout,
            even_if_writer_lives=even_if_writer_lives,
        )
        return self._background.run(work)

    def wait_for_fences(self, ledger_id: int, *, timeout: float | None = None) -> tuple[str, ...]:
        """Wait until every member has fenced a ledger that this client recovered uncleanly."""
        return self._background.run(self._client.wait_for_fences(ledger_id, timeout=timeout))

    def abandoned_ledgers(
        self, ledger_ids: Iterable[int], *, password: bytes = b"", timeout: float | None = None
    ) -> AbandonedLedgers:
        """Return which of these ledgers have no writer, no end, and entries that readers do not
        see.
        """
        work = self._client.abandoned_ledgers(ledger_ids, password=password, timeout=timeout)
        return self._background.run(work)

    def recover_abandoned(
        self, ledger_ids: Iterable[int], *, password: bytes = b"", timeout: float | None = None
    ) -> AbandonedRecovered:
        """Recover those of these ledgers whose writers are gone."""
        work = self._client.recover_abandoned(ledger_ids, password=password, timeout=timeout)
        return self._background.run(work)

    def ledger_info(self, ledger_id: int, *, timeout: float | None = None) -> LedgerInfo:
        """Return a ledger as currently stored."""
        return self._background.run(self._client.ledger_info(ledger_id, timeout=timeout))

    def ledger_infos(
        self, ledger_ids: Iterable[int], *, timeout: float | None = None
    ) -> Iterator[LedgerInfo | None]:
        """Yield many ledgers as currently stored, in the given order; None for an unknown one."""
        pages = self._client.ledger_info_pages(ledger_ids, timeout=timeout)
        return joined.from_iterable(iterate(self._background, pages))

    def read_ranges(
        self,
        ranges: Iterable[LedgerRange],
        *,
        password: bytes = b"",
        encryption: Encryption | StoredPayloads | None = None,
        chunk_bytes: int = asynchronous.CHUNK_BYTES,
        timeout: float | None = None,
    ) -> Iterator[list[RangePart]]:
        """Yield the entries of ranges of many ledgers, in order, in lists of about
        `chunk_bytes`.
        """
        items = self._client.read_ranges(
            ranges,
            password=password,
            encryption=encryption,
            chunk_bytes=chunk_bytes,
            timeout=timeout,
        )
        return iterate(self._background, items)

    def list_ledgers(self, *, start: int = 0, timeout: float | None = None) -> Iterator[LedgerInfo]:
        """Yield every ledger from id `start` on, in order of ids."""
        pages = self._client.ledger_pages(start=start, timeout=timeout)
        return joined.from_iterable(iterate(self._background, pages))

    def delete_ledger(self, ledger_id: int, *, timeout: float | None = None) -> None:
        """Delete a ledger, whatever its state."""
        self._background.run(self._client.delete_ledger(ledger_id, timeout=timeout))

    def chain(self, name: str) -> Chain:
        """Return a handle of the chain with this name, which need not exist yet."""
        return Chain(self._background, self._client.chain(name))

    def list_chains(self, *, timeout: float | None = None) -> list[str]:
        """Return the names of all chains, sorted."""
        return self._background.run(self._client.list_chains(timeout=timeout))

    def stats(self) -> ClientStats:
        """Return a snapshot of the client's counters."""
        return self._client.stats()

    def close(self) -> None:
        """Close every open handle and end the client and its thread. Another call does nothing."""
        try:
            self._background.run(self._client.aclose())
        except ClientClosedError:
            return
        self._background.stop()

    aclose = close

    def _description(self) -> str:  # type: ignore[explicit-override]
        return f"over {self._client!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, client: asynchronous.LedgerClient) -> None:
        self._background = BackgroundLoop()
        self._client = client
