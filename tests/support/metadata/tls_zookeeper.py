"""A real ZooKeeper behind TLS: with its own TLS port, or with a port that forwards to it.

Leaves starting the server to the embedded one, and fetching Netty, without which ZooKeeper has no
TLS, to `benchmarks.peers.maven`. The forwarding port needs nothing, but ZooKeeper sees no
certificates through it.

Source: ZooKeeper 3.9, administrator's guide, "Encryption, Authentication, Authorization Options".
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.maven import default_cache, prepare
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.embedded_ports import HOST, free_port
from quire.local.development_certificates import NamedFiles

CHUNK_BYTES: Final = 65_536


async def netty_jars() -> list[Path]:
    """Return the jars of Netty. Raises PeerUnavailableError."""
    peer = await prepare("zookeeper_tls", default_cache(), Path(__file__).parent)
    _, pattern = peer.classpath.split(os.pathsep)
    return sorted(Path(pattern).parent.glob("netty-*.jar"))


class TlsZooKeeper(EmbeddedZooKeeper):
    """A server with a port for TLS too, which asks its clients for certificates."""

    def __init__(
        self, directory: Path, jars: list[Path], own: NamedFiles, authorities: Path, *, tick_ms: int
    ) -> None:
        super().__init__(directory, tick_ms=tick_ms)
        self.tls_port = free_port()
        self._netty = jars
        self._own = own
        self._authorities = authorities

    def _properties(self) -> str:  # type: ignore[explicit-override]
        store = self.data_dir / "server.pem"
        store.touch(0o600)
        store.write_bytes(self._own.key.read_bytes() + self._own.certificate.read_bytes())
        settings = {
            "secureClientPort": self.tls_port,
            "secureClientPortAddress": HOST,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.keyStore.location": store,
            "ssl.trustStore.location": self._authorities,
            "ssl.clientAuth": "need",
        }
        return super()._properties() + "".join(f"{key}={each}\n" for key, each in settings.items())

    def _spawn(  # type: ignore[explicit-override]
        self, java: Path, jars: list[Path], lock: int
    ) -> None:
        super()._spawn(java, [*jars, *self._netty], lock)


@asynccontextmanager
async def forwarding(context: ssl.SSLContext, port: int) -> AsyncIterator[int]:
    """Accept TLS at another port, which is returned, and forward to a port without it."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(CHUNK_BYTES):
                writer.write(content)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
