"""Connections to a broker over TLS, with a login.

Leaves what is sent on them to the clients.
"""

import asyncio

from benchmarks.processes import host_and_port
from broker_layer.peer import PeerConnection, log_in
from quire.identity.client_file import read_client_file
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl_access import SaslAccess, sasl_access

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BrokerLink:
    """Opens connections to one listener."""

    def __init__(self, address: str, client_file: str, from_host: str | None = None) -> None:
        """With `from_host`, connections come from this address of the machine."""
        self._address = host_and_port(address)
        self._own = None if from_host is None else (from_host, 0)
        self._context = read_client_file(client_file).context

    async def connect(self) -> Streams:
        """Connect over TLS."""
        context, own = self._context, self._own
        return await asyncio.open_connection(*self._address, ssl=context, local_addr=own)

    async def logged_in(self, access: SaslAccess) -> Streams:
        """Connect and log in."""
        reader, writer = await self.connect()
        try:
            await log_in(reader, writer, access)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    async def calls(self, access: SaslAccess) -> PeerConnection:
        """Connect, log in, and return a connection for calls."""
        return PeerConnection(*await self.logged_in(access), "good client")

    @staticmethod
    def access(user: str, password_file: str) -> SaslAccess:
        """Return how a user logs in."""
        return sasl_access(ScramMechanism.SHA_512, user, password_file)
