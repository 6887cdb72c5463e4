"""Brokers that a verb of `quire topic` asks: those of the cluster, or the one at an address.

Leaves asking them to `quire.operate.brokers`.
"""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

from broker_layer.peer import PeerAddress
from ledger_client.cluster_access import identity_of
from metadata.registry.cluster import open_cluster_store
from quire.cli.command_line import METADATA_VARIABLE, metadata_address
from quire.errors import UsageError
from quire.identity.client_file import NO_IDENTITY, ClientFile
from quire.operate.brokers import BrokerAccess, open_peers, open_registered, read_registrations

CLIENT_NAME = "quire-topic"


@asynccontextmanager
async def open_brokers(arguments: argparse.Namespace) -> AsyncIterator[BrokerAccess]:
    """Find the brokers; close the connections to them at the end of the block.

    Raises NoBrokerError, MetadataError, UsageError, SecurityError.
    """
    rng, identity = Random(os.urandom(16)), _identity(arguments)
    opening: AbstractAsyncContextManager[BrokerAccess]
    if arguments.bootstrap:
        address = _parsed(arguments.bootstrap)
        opening = open_peers(CLIENT_NAME, (address,), (), identity, rng)
    else:
        store = await open_cluster_store(metadata_address(arguments), rng=rng)
        try:
            registrations = await read_registrations(store, rng)
        finally:
            await store.aclose()
        listener = arguments.listener
        opening = open_registered(CLIENT_NAME, registrations, identity, rng, listener=listener)
    async with opening as brokers:
        yield brokers


def _identity(arguments: argparse.Namespace) -> ClientFile:
    """Return the client's file of the cluster, which a broker's address makes optional."""
    is_given = arguments.metadata or os.environ.get(METADATA_VARIABLE)
    if arguments.bootstrap and not is_given:
        return NO_IDENTITY
    return identity_of(metadata_address(arguments))


def _parsed(text: str) -> PeerAddress:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise UsageError(f"{text!r} is not HOST:PORT", try_next="--bootstrap 127.0.0.1:9092")
    return PeerAddress(0, host.strip("[]"), int(port))
