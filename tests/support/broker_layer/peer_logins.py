"""Logins of one broker at another: over real sockets, at a listener with logins.

Leaves the listener to `login_setting`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerAccess, PeerAddress, Peers
from broker_layer.server.connections import BrokerConnection
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl_access import SaslAccess
from tests.support.broker_layer.login_setting import LoginSetting
from tests.support.security.sasl_parts import PASSWORD, USERS
from tests.until import until

LONG_S: Final = 20.0
SCRAM: Final = Mechanism.SCRAM_SHA_512


def access_of(
    directory: Path, password: str = PASSWORD, mechanism: Mechanism = SCRAM, user: str = USERS[0]
) -> SaslAccess:
    """Return the access of a broker, with its password in a file of the directory."""
    path = directory / "password"
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_text(f"{password}\n")
    return SaslAccess(mechanism, user, str(path))


@asynccontextmanager
async def listening(setting: LoginSetting) -> AsyncIterator[PeerAddress]:
    """Serve logins on loopback."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: BrokerConnection(setting.context, setting.access), "127.0.0.1", 0
    )
    try:
        yield PeerAddress(7, *server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for connection in [*setting.context.connections]:
            connection.abort()
        await setting.aclose()
        await until(lambda: not setting.context.connections)


@asynccontextmanager
async def peers_of(access: SaslAccess) -> AsyncIterator[Peers]:
    """Return the connections of one broker to others."""
    peers = Peers("broker-1", Random(1), PeerAccess(None, access))
    try:
        yield peers
    finally:
        await peers.aclose()


async def ask(peers: Peers, address: PeerAddress, api_key: int = ApiKey.METADATA) -> bytes:
    """Return the answer to a request: the principal, or what the setting holds of a Fetch."""
    version = 12 if api_key == ApiKey.FETCH else 9
    return bytes(await peers.call(address, api_key, version, b"", timeout_s=LONG_S))
