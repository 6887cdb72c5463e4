"""Broker under test: one at a given address, one of Quire's, or an Apache Kafka.

Leaves starting them to `quire.local_cluster` and `tests.kafka.apache_kafka`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from quire.local_cluster import LocalCluster
from tests.kafka.apache_kafka import apache_kafka
from tests.kafka.endpoint import Endpoint
from tests.support.quire.in_thread import InThread

QUIRE_BROKERS: Final = 2


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
                yield ",".join(local_broker.address for local_broker in cluster.brokers)
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
    listeners = [local_broker.listeners for local_broker in cluster.brokers]
    logins, certificates = (
        ",".join(listener[protocol] for listener in listeners) for protocol in ("SASL_SSL", "SSL")
    )
    return SecureEndpoints(
        Endpoint.with_login(logins, cluster.certificates),
        Endpoint.with_certificate(certificates, cluster.certificates),
    )


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
