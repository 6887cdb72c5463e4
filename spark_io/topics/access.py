"""Access to a cluster for planning: its topics, their partitions, and their ledgers.

Leaves the queries to `partitions`. The driver plans on one background event loop with one
connection per cluster. The connection is opened at its first use and never closed, as the clients
of `workers`.

Invariants: everything here is used only on its event loop; `call` raises failures of the metadata
service as the ledger client's errors.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from ledger_client import LedgerClient
from ledger_client.cluster_access import wall_clock_ms
from ledger_client.metadata_failures import metadata_call
from ledger_client.sync_loop import BackgroundLoop
from metadata.registry.cluster import open_cluster_store
from metadata.store.interface import MetadataStore
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic_store import TopicStore
from spark_io.common_options import ClientOptions
from spark_io.workers import PerCluster

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class TopicServices:
    """One connection to a cluster, for coroutines on one event loop."""

    store: MetadataStore
    topics: TopicStore
    partitions: PartitionStore
    client: LedgerClient
    password: bytes

    @classmethod
    def over(cls, store: MetadataStore, options: ClientOptions, rng: Random) -> "TopicServices":
        """Return the services over a store; they close it at their end."""
        client = LedgerClient.from_parts(
            store, rng=rng, wall_clock_ms=wall_clock_ms, config=options.config
        )
        return cls(
            store, TopicStore(store, rng), PartitionStore(store, rng), client, options.password
        )


class TopicAccess:
    """Runs coroutines over one cluster's topics, for blocking callers."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._background = BackgroundLoop()
        self._opening = asyncio.Lock()
        self._services: TopicServices | None = None

    def call(
        self,
        what: str,
        work: Callable[[TopicServices], Coroutine[Any, Any, ResultT]],
        timeout_s: float,
    ) -> ResultT:
        """Return the result of `work`. Raises LedgerError; raises MetadataUnavailableError, which
        names `what`, after `timeout_s`.
        """
        return self._background.run(self._called(what, work, timeout_s))

    async def _called(
        self,
        what: str,
        work: Callable[[TopicServices], Coroutine[Any, Any, ResultT]],
        timeout_s: float,
    ) -> ResultT:
        async with metadata_call(what, self._options.metadata, timeout_s):
            return await work(await self._opened())

    async def _opened(self) -> TopicServices:
        async with self._opening:
            if self._services is None:
                rng, config = Random(), self._options.config
                store = await open_cluster_store(
                    self._options.metadata,
                    rng=rng,
                    operation_timeout_s=config.metadata_timeout_s,
                    session_timeout_s=config.session_timeout_s,
                )
                self._services = TopicServices.over(store, self._options, rng)
            return self._services

    def close(self) -> None:
        """Close the connection."""
        services, self._services = self._services, None
        if services is not None:
            self._background.run(services.client.aclose())
        self._background.stop()


_accesses = PerCluster(TopicAccess)


def access_of(options: ClientOptions) -> TopicAccess:
    """Return this process's access to a cluster."""
    return _accesses.of(options)
