"""A whole broker on loopback, with a metadata store and bookies in memory."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from broker_layer.broker_process import BrokerEnvironment, BrokerProcess, client_config
from broker_layer.options import BrokerOptions
from metadata.registry.cluster import ensure_cluster
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from tests.support.broker_layer.served_broker import Client
from tests.support.ledger_client.cluster import TestCluster

OPTIONS = BrokerOptions(
    listeners="PLAINTEXT://127.0.0.1:0",
    offsets_topic_partitions=2,
    transaction_topic_partitions=2,
    default_replication_factor=1,
    group_initial_rebalance_delay_ms=0,
    drain_timeout_s=1.0,
)


@dataclass(frozen=True, slots=True)
class WholeBroker:
    """A running broker, its metadata store and a connection to it."""

    process: BrokerProcess
    store: MemoryMetadataStore
    client: Client
    server: MemoryMetadataServer
    """What further metadata stores connect to."""


@asynccontextmanager
async def whole_broker(options: BrokerOptions = OPTIONS) -> AsyncIterator[Client]:
    """Run one broker and one bookie; yield a connection to the broker."""
    async with whole_broker_parts(options) as broker:
        yield broker.client


@asynccontextmanager
async def whole_broker_parts(options: BrokerOptions = OPTIONS) -> AsyncIterator[WholeBroker]:
    """Run one broker and one bookie."""
    loop = asyncio.get_running_loop()
    bookies = TestCluster()
    await bookies.add_bookie()
    store = MemoryMetadataStore(bookies.server, session_timeout_s=options.session_timeout_s)
    await ensure_cluster(store, Random(8))
    client = bookies.client(append_deadline_s=client_config(options).append_deadline_s)
    environment = BrokerEnvironment(
        options, store, client, Random(7), lambda: int(time.time() * 1000), loop.time, "test"
    )
    process = BrokerProcess(environment)
    writer = None
    try:
        serving = await process.start()
        host, port = serving.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**26)
        yield WholeBroker(process, store, Client(reader, writer), bookies.server)
    finally:
        if writer is not None:
            writer.close()
        await process.stop()
        await client.aclose()
        await store.aclose()
        await bookies.aclose()
