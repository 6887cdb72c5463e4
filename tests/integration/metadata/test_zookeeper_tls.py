"""The store over TLS: a server is verified before anything is sent, and may want a certificate."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.peers.maven import PeerUnavailableError
from metadata.errors import StoreUnavailableError
from metadata.ids import Version
from metadata.paths import COOKIES, LEDGERS, REPAIR_KEY
from metadata.security.access_errors import AccessRefusedError
from metadata.security.rights_record import checked_rights
from metadata.security.securing import Securing
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.zookeeper.store import open_store
from quire.bench.injection import DelayingProxy
from quire.identity.tls import ClientCertificates, TlsFiles, server_context
from quire.local.development_certificates import DevelopmentAuthority
from tests.integration.metadata.conftest import TICK_MS
from tests.integration.metadata.service import ZooKeeperService
from tests.support.metadata.tls_zookeeper import TlsZooKeeper, netty_jars

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAILS_AFTER_S = 2.0
"""Time in which an attempt that cannot succeed is repeated."""


@dataclass
class Server:
    """A ZooKeeper whose TLS port has a certificate for 127.0.0.1 alone."""

    files: Path
    """Certificates of clients, and those of authorities: its own one and another one."""
    port: int
    plain_port: int
    sees_certificates: bool


@dataclass
class Setting:
    """The server, with a root and clients' files for one test."""

    server: Server
    directory: Path

    def uri(self, table: str, host: str = "127.0.0.1", port: int = 0) -> str:
        """Return a URI whose client's file has this table of ZooKeeper."""
        file = self.directory / f"client-{len(list(self.directory.iterdir()))}.toml"
        file.write_text(f"[zookeeper]\n{table}")
        root = self.directory.parent.name
        return f"zk://{host}:{port or self.server.port}/{root}?client={file}"


def table_of(name: str, authorities: str = "ca.pem") -> str:
    own = f'certificate = "{name}.pem"\nkey = "{name}-key.pem"\n' if name else ""
    return f'tls = true\n{own}authorities = "{authorities}"\n'


@pytest_asyncio.fixture(
    params=["of ZooKeeper", "in front of it"], scope="module", loop_scope="module"
)
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    authority = DevelopmentAuthority(directory / "tls")
    own = authority.issue("server", ["127.0.0.1"])
    for name in ("alice", "bob"):
        authority.issue(name, ())
    other = DevelopmentAuthority(directory / "other")
    (directory / "tls" / "other-ca.pem").write_bytes(other.files.certificate.read_bytes())
    async with AsyncExitStack() as stack:
        if request.param == "of ZooKeeper":
            try:
                jars = await netty_jars()
            except PeerUnavailableError as error:
                pytest.skip(str(error))
            tls = TlsZooKeeper(
                directory / "zk", jars, own, authority.files.certificate, tick_ms=TICK_MS
            )
            await stack.enter_async_context(tls)
            yield Server(directory / "tls", tls.tls_port, tls.port, sees_certificates=True)
            return
        plain = EmbeddedZooKeeper(directory / "zk", tick_ms=TICK_MS)
        await stack.enter_async_context(plain)
        files = TlsFiles(str(own.certificate), str(own.key), str(authority.files.certificate))
        context = server_context(files, ClientCertificates.REQUIRED)
        proxy = await DelayingProxy(plain.address).start(tls=context)
        stack.push_async_callback(proxy.aclose)
        port = int(proxy.address.rpartition(":")[2])
        yield Server(directory / "tls", port, plain.port, sees_certificates=False)


@pytest.fixture
def setting(server: Server, tmp_path: Path) -> Setting:
    return Setting(server, Path(shutil.copytree(server.files, tmp_path / "tls")))


async def test_values_over_tls(setting: Setting) -> None:
    """Several answers and news arrive in one record of TLS; none is left in it."""
    service = ZooKeeperService(setting.uri(table_of("alice")))
    store = await service.connect()
    seen: list[str] = []
    store.watch_children("/a", lambda: seen.append("a"))
    for number in range(50):
        await store.create(f"/a/{number}", bytes([number]) * 10_000)
    assert len(await store.children("/a")) == 50
    for number in range(50):
        assert (await store.get(f"/a/{number}")).value == bytes([number]) * 10_000
    assert seen
    await service.interrupt(store)
    assert (await store.get("/a/1", fresh=True)).version == 0
    assert await store.compare_and_set("/a/1", b"", Version(0)) == 1
    await service.aclose()


@pytest.mark.parametrize(
    ("name", "authorities", "host", "why"),
    [
        ("alice", "other-ca.pem", "127.0.0.1", "certificate verify failed"),
        ("alice", "ca.pem", "localhost", "Hostname mismatch"),
        ("", "ca.pem", "127.0.0.1", "no connection within"),
    ],
    ids=["other authority", "other name", "no certificate"],
)
async def test_a_side_that_is_not_verified_is_refused(
    setting: Setting, rng: random.Random, name: str, authorities: str, host: str, why: str
) -> None:
    uri = setting.uri(table_of(name, authorities), host)
    with pytest.raises(StoreUnavailableError, match=why):
        await open_store(uri, rng=rng, operation_timeout_s=FAILS_AFTER_S)


async def test_a_port_of_the_other_kind_is_an_error(setting: Setting, rng: random.Random) -> None:
    uris = (
        setting.uri(table_of("alice"), port=setting.server.plain_port),
        f"zk://127.0.0.1:{setting.server.port}/quire",
    )
    opening = [open_store(uri, rng=rng, operation_timeout_s=FAILS_AFTER_S) for uri in uris]
    outcomes = await asyncio.gather(*opening, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 2


async def test_a_store_connects_again_with_files_that_were_replaced(setting: Setting) -> None:
    service = ZooKeeperService(setting.uri(table_of("alice")))
    store = await service.connect()
    for suffix in (".pem", "-key.pem"):
        old = setting.directory / f"alice{suffix}"
        (setting.directory / f"bob{suffix}").replace(old)
    await service.interrupt(store)
    await store.get("/", fresh=True)
    await store.create("/a", b"")
    (setting.directory / "alice.pem").write_text("not a certificate")
    await service.interrupt(store)
    assert (await store.get("/a", fresh=True)).value == b""
    await service.aclose()


async def test_a_certificate_is_a_login(setting: Setting, rng: random.Random) -> None:
    if not setting.server.sees_certificates:
        pytest.skip("ZooKeeper sees no certificate through a port that forwards")
    subjects = [f"x509:CN={name},O=quire development" for name in ("alice", "bob")]
    rights = checked_rights(subjects[:1], subjects[1:])
    alice = await open_store(setting.uri(table_of("alice")), rng=rng)
    await alice.create(REPAIR_KEY, b"key")
    outcome = await Securing(alice, rng, rights).apply()
    assert outcome.is_settled
    assert await alice.access_to(REPAIR_KEY) == rights.access_to(REPAIR_KEY)
    bob = await open_store(setting.uri(table_of("bob")), rng=rng)
    await bob.create(f"{LEDGERS}/0000", b"")
    with pytest.raises(AccessRefusedError):
        await bob.get(REPAIR_KEY)
    with pytest.raises(AccessRefusedError, match="quire metadata secure"):
        await bob.create(f"{COOKIES}/b", b"")
    await alice.delete(f"{LEDGERS}/0000", Version(0))
    await bob.aclose()
    await alice.aclose()
