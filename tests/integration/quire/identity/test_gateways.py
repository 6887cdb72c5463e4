"""Clients with certificates that reach the metadata by gateways alone, with real bookies."""

import asyncio
import json
import random
import ssl
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from ledger_client import UnauthorizedError
from ledger_client.config import ClientConfig
from ledger_client.errors import LedgerError
from metadata.gateway.errors import GatewayRefusedError
from metadata.gateway.opening import open_store
from metadata.ids import EntryId, LedgerId, Version
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import LEDGER_GRANTS, LEDGER_IDS, REPAIR_KEY, USERS
from metadata.store.interface import MetadataStore
from metadata.store.number_blocks import pack_block
from quire.errors import ExitCode
from quire.identity.tls import TlsFiles, client_context
from quire.local.local_server import LocalServer
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import LocalCluster
from quire.server.overriding import override
from tests.integration.quire.identity.known_clients import (
    THREE,
    KnownClients,
    principal,
    read_all,
    until_done,
)
from tests.support.metadata.samples import token
from tests.until import WAIT_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ("alice", "bob", "root")
SESSION_S = 4.0
FAST = ClientConfig(append_deadline_s=30.0, session_timeout_s=SESSION_S)


@dataclass
class GatedCluster(KnownClients):
    """A cluster whose bookies enforce roles, and its gateways."""

    gateways: list[LocalServer] = field(default_factory=list)

    @property
    @override
    def address(self) -> str:
        addresses = ",".join(gateway.address for gateway in self.gateways)
        return f"gateway://{addresses}"

    async def store(self, name: str) -> MetadataStore:
        return await open_store(self.uri(name), rng=random.Random(1))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatedCluster]:
    tmp_path = tmp_path_factory.mktemp("gates")
    directory = SecureDirectory(tmp_path / "tls")
    directory.fill(clients=NAMES)
    secure = {
        "tls": "required",
        "super_users": principal("root"),
        **directory.certificate_options("bookie"),
    }
    options = {**secure, "authorizer": "enforce", "repair": "false"}
    async with LocalCluster(4, tmp_path / "data", bookie_options=options) as cluster:
        gated = GatedCluster(cluster, directory, FAST)
        flags = {"metadata": cluster.metadata_uri, "port": "0"}
        try:
            for number in range(2):
                log_path = tmp_path / f"gateway-{number}.log"
                one = LocalServer(
                    ("gateway", "run"),
                    f"gateway-{number}",
                    flags,
                    {**secure, "session_timeout_s": str(SESSION_S)},
                    log_path,
                    ready_timeout_s=WAIT_S,
                )
                gated.gateways.append(one)
                await one.start()
            yield gated
        finally:
            for one in gated.gateways:
                await one.stop()


async def test_an_owner_works_and_others_change_nothing(gated: GatedCluster) -> None:
    async with gated.client("alice") as alice, gated.client("bob") as bob:
        ledger = await alice.create_ledger(THREE)
        assert (await alice.ledger_info(ledger.id)).owner == principal("alice")
        await ledger.append_many([b"one", b"two"])
        with pytest.raises(LedgerError):
            await bob.delete_ledger(ledger.id)
        with pytest.raises(UnauthorizedError):
            await bob.recover_ledger(ledger.id)
        await check_raw_changes(gated, LedgerId(ledger.id))
        await ledger.append(b"three")
        await ledger.aclose()
        assert await read_all(alice, ledger.id) == [b"one", b"two", b"three"]
        chain = alice.chain("orders")
        await chain.create()
        await chain.publish([await alice.ledger_info(ledger.id)])
        with pytest.raises(LedgerError):
            await bob.chain("orders").delete()
        await chain.delete()
        await alice.delete_ledger(ledger.id)


async def check_raw_changes(gated: GatedCluster, ledger_id: LedgerId) -> None:
    """Check that a client without the rules of the client's library is refused."""
    store = await gated.store("bob")
    try:
        ledgers = LedgerStore(store, random.Random(1), lambda: 5)
        metadata, version = await ledgers.get(ledger_id, fresh=True)
        for change in (
            metadata.with_recovery_begun(token(5)),
            metadata.with_closed(EntryId(0), 3, token(5)),
        ):
            with pytest.raises(GatewayRefusedError, match="CN=bob"):
                await ledgers.compare_and_set(change, version)
        with pytest.raises(GatewayRefusedError):
            await ledgers.delete(ledger_id)
        counter = await store.get(LEDGER_IDS)
        for number in (1, 10**12):
            with pytest.raises(GatewayRefusedError):
                value = pack_block(LEDGER_IDS, number)
                await store.compare_and_set(LEDGER_IDS, value, counter.version)
        for path in (REPAIR_KEY, f"{USERS}/alice"):
            with pytest.raises(GatewayRefusedError):
                await store.get(path)
        with pytest.raises(GatewayRefusedError):
            await store.create(f"{LEDGER_GRANTS}/bob", b"")
        with pytest.raises(GatewayRefusedError):
            await store.delete("/instance", Version(0))
        assert await ledgers.get(ledger_id, fresh=True) == (metadata, version)
    finally:
        await store.aclose()


async def test_a_grant_lets_another_client_recover(gated: GatedCluster) -> None:
    async with gated.client("alice") as alice, gated.client("bob") as bob:
        ledger = await alice.create_ledger(THREE)
        await ledger.append_many([b"one", b"two"])
        words = ("grant", "add", principal("bob"), "recoverer", f"ledger:{ledger.id}")
        assert await gated.quire(*words, name="bob") == ExitCode.REFUSED
        assert await gated.quire(*words) == ExitCode.DONE
        await until_done(lambda: bob.recover_ledger(ledger.id), LedgerError)
        assert (await alice.ledger_info(ledger.id)).last_entry_id == 1
        with pytest.raises(LedgerError):
            await bob.delete_ledger(ledger.id)


async def test_no_append_is_lost_when_a_gateway_dies(gated: GatedCluster) -> None:
    async with gated.client("alice") as alice:
        ledger = await alice.create_ledger(THREE)
        appended: list[bytes] = []
        stopping = asyncio.Event()

        async def keep_appending() -> None:
            while not stopping.is_set():
                entry = b"%d" % len(appended)
                await ledger.append(entry)
                appended.append(entry)

        load = asyncio.create_task(keep_appending())
        await until(lambda: len(appended) > 50)
        used = await _used_by(gated)
        used.kill()
        count = len(appended)
        # A member that dies makes the writer change the metadata at the other gateway.
        killed = gated.cluster.bookies[0]
        killed.kill()
        await until(lambda: load.done() or len(appended) > count + 200)
        stopping.set()
        await load
        await ledger.aclose()
        assert await read_all(alice, ledger.id) == appended
        other = await alice.create_ledger(THREE)
        await other.append(b"again")
        await other.aclose()
        await used.restart()
        await killed.restart()


async def _used_by(gated: GatedCluster) -> LocalServer:
    """Return the gateway that has a client."""
    for gateway in gated.gateways:
        text = await asyncio.to_thread(fetch, gated, f"{gateway.admin_url}/metrics")
        if "quire_gateway_sessions_now 1.0" in text:
            return gateway
    raise AssertionError("no gateway has a client")


def fetch(gated: GatedCluster, url: str) -> str:
    path = gated.directory.path
    context = client_context(
        TlsFiles(*(str(path / each) for each in ("root.pem", "root-key.pem", "ca.pem")))
    )
    with urllib.request.urlopen(url, context=context) as answer:
        return str(answer.read().decode())


async def refused_reads(gated: GatedCluster) -> float:
    """Return the number of reads that the gateways have refused."""
    name = 'quire_gateway_requests_refused_total{kind="read"} '
    texts = [
        await asyncio.to_thread(fetch, gated, f"{gateway.admin_url}/metrics")
        for gateway in gated.gateways
    ]
    lines = [line for text in texts for line in text.splitlines() if line.startswith(name)]
    return sum(float(line.removeprefix(name)) for line in lines)


async def test_health_and_refusals_are_shown(gated: GatedCluster) -> None:
    before = await refused_reads(gated)
    store = await gated.store("bob")
    with pytest.raises(GatewayRefusedError):
        await store.get(REPAIR_KEY)
    await store.aclose()
    assert await refused_reads(gated) == before + 1
    url = f"{gated.gateways[0].admin_url}/readyz"
    ready = await asyncio.to_thread(fetch, gated, url)
    assert json.loads(ready) == {"status": "ready"}
    logs = "".join(gateway.log_tail() for gateway in gated.gateways)
    assert '"act": "read of metadata"' in logs
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.to_thread(urllib.request.urlopen, url.replace("https", "http"))
