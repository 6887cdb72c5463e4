"""Broker under test: one at a given address, one of Quire's, or an Apache Kafka.

Leaves starting them to `quire.local_cluster` and `tests.kafka.apache_kafka`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from quire.local_cluster import LocalCluster
from tests.kafka.apache_kafka import apache_kafka
from tests.kafka.endpoint import Endpoint

QUIRE_BROKERS: Final = 2
START_TIMEOUT_S: Final = 240
STOP_TIMEOUT_S: Final = 60

Yielded = TypeVar("Yielded")


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


@dataclass(frozen=True, slots=True)
class SecureEndpoints:
    """The two listeners of the brokers of a secure cluster."""

    login: Endpoint
    certificate: Endpoint


@asynccontextmanager
async def secure_brokers(brokers: int = QUIRE_BROKERS) -> AsyncIterator[SecureEndpoints]:
    """Start a secure cluster of Quire; yield its endpoints."""
    async with LocalCluster(broker=brokers, secure=True) as cluster:
        yield endpoints_of(cluster)


def endpoints_of(cluster: LocalCluster) -> SecureEndpoints:
    """Return the endpoints of a secure cluster that has started."""
    listeners = [each.listeners for each in cluster.brokers]
    logins, certificates = (
        ",".join(each[protocol] for each in listeners) for protocol in ("SASL_SSL", "SSL")
    )
    return SecureEndpoints(
        Endpoint.with_login(logins, cluster.certificates),
        Endpoint.with_certificate(certificates, cluster.certificates),
    )


class InThread(Generic[Yielded]):
    """Asynchronous context manager for blocking callers: a loop in a thread runs it."""

    def __init__(self, manager: AbstractAsyncContextManager[Yielded]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._manager = manager

    def __enter__(self) -> Yielded:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._entered(), self._loop)
        return starting.result(START_TIMEOUT_S)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._left(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()

    async def _entered(self) -> Yielded:
        return await self._manager.__aenter__()

    async def _left(self) -> None:
        await self._manager.__aexit__(None, None, None)


def broker_in_thread(which: str, brokers: int = QUIRE_BROKERS) -> InThread[Endpoint]:
    """Return a broker without security for blocking callers, as of `broker`."""
    return InThread(_plaintext(which, brokers))


@asynccontextmanager
async def _plaintext(which: str, brokers: int) -> AsyncIterator[Endpoint]:
    async with broker(which, brokers) as address:
        yield Endpoint(address)


def secure_brokers_in_thread(brokers: int = QUIRE_BROKERS) -> InThread[SecureEndpoints]:
    """Return the brokers of a secure cluster for blocking callers."""
    return InThread(secure_brokers(brokers))
