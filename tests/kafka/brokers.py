"""Broker under test: one at a given address, one of Quire's, or an Apache Kafka.

Leaves starting them to `quire.local_cluster` and `tests.kafka.apache_kafka`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from quire.local_cluster import LocalCluster
from tests.kafka.apache_kafka import apache_kafka

QUIRE_BROKERS: Final = 2
START_TIMEOUT_S: Final = 240
STOP_TIMEOUT_S: Final = 60


@asynccontextmanager
async def broker(which: str, brokers: int = QUIRE_BROKERS) -> AsyncIterator[str]:
    """Yield the address of a broker: `which` is "kafka" or "quire", started for this, or HOST:PORT.

    `brokers` is the number of Quire's brokers to start; of Apache Kafka it is one. Raises
    PeerUnavailableError if Apache Kafka cannot be fetched.
    """
    match which:
        case "kafka":
            async with apache_kafka() as address:
                yield address
        case "quire":
            async with LocalCluster(broker=brokers) as cluster:
                yield ",".join(each.address for each in cluster.brokers)
        case _:
            yield which


class BrokerInThread:
    """Broker for blocking callers: a loop in a thread runs it."""

    def __init__(self, which: str, brokers: int = QUIRE_BROKERS) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._manager = broker(which, brokers)

    def __enter__(self) -> str:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._manager.__aenter__(), self._loop)
        return starting.result(START_TIMEOUT_S)

    def __exit__(self, *_: object) -> None:
        ending = self._manager.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(ending, self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()
