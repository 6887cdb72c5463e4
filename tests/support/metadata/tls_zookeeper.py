"""A real ZooKeeper with its own TLS port.

Leaves starting the server to the embedded one, and fetching Netty, without which ZooKeeper has no
TLS, to `benchmarks.peers.maven`.

Source: ZooKeeper 3.9, administrator's guide, "Encryption, Authentication, Authorization Options".
"""

import os
from pathlib import Path

from benchmarks.peers.maven import default_cache, prepare
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.embedded_ports import HOST, free_port
from quire.local.development_certificates import NamedFiles


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
