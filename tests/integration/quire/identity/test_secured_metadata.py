"""Logins to ZooKeeper are turned on in a running cluster, and off again; no append fails."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from ledger_client import LedgerClient
from ledger_client.errors import LedgerError
from metadata.paths import CHAINS, COOKIES, LEDGERS, REPAIR_KEY
from metadata.security.rights_record import OPEN_LIST, AccessList, checked_rights
from metadata.store.zookeeper.store import open_store
from quire.errors import ExitCode
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire
from tests.integration.quire.identity.test_rolling_tls import appending, restart_all
from tests.support.metadata.logins import Login, write_login
from tests.until import until

FOUR = 4


def secure(uri: str, *words: str, status: ExitCode = ExitCode.DONE) -> dict[str, object]:
    """Run `quire metadata secure`, and return what it prints."""
    done = run_quire("metadata", "secure", *words, "--json", metadata=uri)
    assert done.returncode == status, done.stderr
    found = json.loads(done.stdout or "{}")
    assert isinstance(found, dict)
    return found


async def check_rights(uri: str, servers: Login, clients: Login) -> None:
    """Every node has the rights of the table."""
    rights = checked_rights([servers.identity], [clients.identity])
    store = await open_store(servers.uri(uri), rng=random.Random(1))
    for path in ("/", LEDGERS, COOKIES, CHAINS, REPAIR_KEY):
        assert await store.access_to(path) == rights.access_to(path), path
    await store.aclose()


class ClusterWithFiles(LocalCluster):
    """A cluster whose bookies name a client's file, which is empty until a test writes it."""

    file = Path()

    def _uri_for(self, name: str) -> str:  # type: ignore[explicit-override]
        return f"{super()._uri_for(name)}?client={self.file}"


@pytest.mark.long
async def test_no_append_fails_while_metadata_is_protected_and_opened(tmp_path: Path) -> None:
    servers, clients = write_login(tmp_path, "servers"), write_login(tmp_path, "clients")
    words = ("--clients-user", "clients", "--clients-password-file", str(clients.password_file))
    ClusterWithFiles.file = tmp_path / "bookies.toml"
    ClusterWithFiles.file.touch()
    async with ClusterWithFiles(FOUR, tmp_path / "data") as cluster:
        plain = cluster.metadata_uri.partition("?")[0]
        logged_in, admin = clients.uri(plain), servers.uri(plain)
        async with appending(plain):
            cluster.file.write_text(servers.file.read_text())
            await restart_all(cluster, {})
        async with appending(logged_in) as load:
            planned = await asyncio.to_thread(secure, admin, *words, "--dry-run")
            assert await rights_of_root(plain) == OPEN_LIST
            done = await asyncio.to_thread(secure, admin, *words)
            assert (done["settled"], done["refused"]) == (True, [])
            assert int(str(done["changed_count"])) >= 20
            assert int(str(planned["changed_count"])) >= 20
            count = len(load.entries)
            await until(lambda: len(load.entries) > count + 50)
        async with appending(logged_in):
            await cluster.bookies[0].restart()
            again = await asyncio.to_thread(secure, admin, *words)
            assert (again["settled"], again["changed_count"]) == (True, 0)
        await check_rights(plain, servers, clients)
        listed = await asyncio.to_thread(run_quire, "ledger", "list", metadata=plain)
        assert listed.returncode != ExitCode.DONE
        assert b"?client=FILE" in listed.stderr
        with pytest.raises(LedgerError, match=r"\?client=FILE"):
            await LedgerClient(plain).__aenter__()
        await asyncio.to_thread(secure, logged_in, "--open", status=ExitCode.REFUSED)
        async with appending(logged_in):
            assert (await asyncio.to_thread(secure, admin, "--open"))["settled"]
            cluster.file.write_text("")
            await restart_all(cluster, {})
        async with appending(plain) as load:
            assert await rights_of_root(plain) == OPEN_LIST
            await until(lambda: len(load.entries) > 50)


async def rights_of_root(uri: str) -> AccessList:
    store = await open_store(uri, rng=random.Random(1))
    try:
        return await store.access_to("/")
    finally:
        await store.aclose()


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    login = write_login(tmp_path, "servers")
    uri = "zk://127.0.0.1:1/quire"
    for words, why in (
        (("secure",), "no servers"),
        (("secure", "--clients-user", "a"), "belong together"),
        (("secure", "--open", "--clients", "x509:CN=a"), "name no servers"),
        (("secure", "--servers", "world:anyone"), "not the identity"),
        (("identity",), "no client's file"),
    ):
        done = run_quire("metadata", *words, metadata=uri)
        assert done.returncode == ExitCode.USAGE, (words, done.stderr)
        assert why in done.stderr.decode()
    shown = run_quire("metadata", "identity", "--json", metadata=login.uri(uri))
    assert json.loads(shown.stdout) == {"identity": login.identity}
