"""Blocking handle of one chain, for `ledger_client.sync`.

Leaves the work to the asynchronous handle, and the thread in which it runs to `sync_loop`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain as joined
from typing import Final

from ledger_client import chains
from ledger_client.blocking.sync_loop import BackgroundLoop, iterate
from ledger_client.chains import ChainInfo
from ledger_client.errors import LedgerError, MetadataUnavailableError
from ledger_client.handle import Handle
from ledger_client.info import LedgerInfo
from metadata.ids import LedgerId
from metadata.ledgers.chain import ChainLink, LinkedLedger
from metadata.ledgers.chain_store import Published

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
