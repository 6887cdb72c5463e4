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
from ledger_client.info import LedgerInfo
from ledger_client.observability import ClientStats, EventCallback
from ledger_client.reading.reader import LedgerReader as AsyncReader
from ledger_client.replication import Quorum
from ledger_client.sync_handles import LedgerReader, LedgerWriter
from ledger_client.sync_loop import BackgroundLoop, BlockingHandle, blocking, iterate, iterating
from ledger_client.writing.writer import LedgerWriter as AsyncWriter
from metadata.ledgers.chain import ChainLink
from metadata.ledgers.payload_encryption import PayloadEncryption

__all__ = ["Chain", "LedgerClient", "LedgerReader", "LedgerWriter", "Quorum"]


FOLLOW_STEP_S: Final = 30.0
RETRY_S: Final = 0.5
UNSEEN_MAX_S: Final = 60.0


class Chain(BlockingHandle):
    """One chain, by name: `ledger_client.Chain` for threads."""

    _handle: chains.Chain

    def __init__(self, background: BackgroundLoop, chain: chains.Chain) -> None:
        self._background = background
        self._handle = chain

    @property
    def name(self) -> str:
        """The chain's name."""
        return self._handle.name

    @property
    def custom_metadata(self) -> dict[str, str]:
        """Custom metadata for a ledger to be published in this chain: the ledger is collected if it
        is never published.
        """
        return self._handle.custom_metadata

    create = blocking(chains.Chain.create)
    info = blocking(chains.Chain.info)
    publish = blocking(chains.Chain.publish)
    last_batch = blocking(chains.Chain.last_batch)
    withdraw = blocking(chains.Chain.withdraw)
    trim = blocking(chains.Chain.trim)
    collect = blocking(chains.Chain.collect)
    wait_changed = blocking(chains.Chain.wait_changed)
    delete = blocking(chains.Chain.delete)

    def links(
        self, first_index: int, end_index: int, *, timeout: float | None = None
    ) -> Iterator[tuple[int, ChainLink | None]]:
        """Yield the links `first_index`..`end_index` - 1 with their indices; None for a link that
        was collected.
        """
        pages = self._handle.link_pages(first_index, end_index, timeout=timeout)
        return joined.from_iterable(iterate(self._background, pages))

    def follow(self) -> "FollowedChain":
        """Read the chain now, and keep its head up to date in the background. Raises
        ChainNotFoundError.
        """
        return FollowedChain(self._background, self._handle, self.info())


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


class LedgerClient(BlockingHandle):
    """Opens ledgers of one cluster: `ledger_client.LedgerClient` for threads."""

    _handle: asynchronous.LedgerClient

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

        client._handle = client._background.run(made())  # noqa: SLF001
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
        opening = self._handle.create_ledger(
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
        opening = self._handle.open_ledger(
            ledger_id, password=password, encryption=encryption, timeout=timeout
        )

        async def opened() -> AsyncReader:
            return await opening

        return LedgerReader(self._background, self._background.run(opened()))

    recover_ledger = blocking(asynchronous.LedgerClient.recover_ledger)
    recover_ledger_unclean = blocking(asynchronous.LedgerClient.recover_ledger_unclean)
    wait_for_fences = blocking(asynchronous.LedgerClient.wait_for_fences)
    abandoned_ledgers = blocking(asynchronous.LedgerClient.abandoned_ledgers)
    recover_abandoned = blocking(asynchronous.LedgerClient.recover_abandoned)
    ledger_info = blocking(asynchronous.LedgerClient.ledger_info)
    read_ranges = iterating(asynchronous.LedgerClient.read_ranges)
    delete_ledger = blocking(asynchronous.LedgerClient.delete_ledger)
    list_chains = blocking(asynchronous.LedgerClient.list_chains)

    def ledger_infos(
        self, ledger_ids: Iterable[int], *, timeout: float | None = None
    ) -> Iterator[LedgerInfo | None]:
        """Yield many ledgers as currently stored, in the given order; None for an unknown one."""
        pages = self._handle.ledger_info_pages(ledger_ids, timeout=timeout)
        return joined.from_iterable(iterate(self._background, pages))

    def list_ledgers(self, *, start: int = 0, timeout: float | None = None) -> Iterator[LedgerInfo]:
        """Yield every ledger from id `start` on, in order of ids."""
        pages = self._handle.ledger_pages(start=start, timeout=timeout)
        return joined.from_iterable(iterate(self._background, pages))

    def chain(self, name: str) -> Chain:
        """Return a handle of the chain with this name, which need not exist yet."""
        return Chain(self._background, self._handle.chain(name))

    def stats(self) -> ClientStats:
        """Return a snapshot of the client's counters."""
        return self._handle.stats()

    def close(self) -> None:
        """Close every open handle and end the client and its thread. Another call does nothing."""
        try:
            self._background.run(self._handle.aclose())
        except ClientClosedError:
            return
        self._background.stop()

    aclose = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, client: asynchronous.LedgerClient) -> None:
        self._background = BackgroundLoop()
        self._handle = client
