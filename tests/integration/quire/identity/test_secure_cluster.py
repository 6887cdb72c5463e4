"""A secure cluster of real processes: clients with a certificate are served, others are refused."""

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from ledger_client import ClientConfig, LedgerClient, Quorum
from ledger_client.errors import LedgerError, UnauthorizedError
from quire.errors import ExitCode
from quire.identity.client_file import read_client_file
from quire.local.secure_directory import SecureDirectory
from tests.integration.quire.command import RunningCluster, run_quire, start_cluster

THREE = Quorum(3, 3, 2)
SOON = ClientConfig(append_deadline_s=3.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("secure"), 3, secure=True)
    yield running
    running.stop()


def certificates(cluster: RunningCluster) -> SecureDirectory:
    return SecureDirectory(Path(cluster.told["data"]) / "tls")


def uri_for(cluster: RunningCluster, directory: SecureDirectory) -> str:
    return f"{cluster.metadata.partition('?')[0]}?client={directory.client_file('client')}"


async def append_with(uri: str) -> list[bytes]:
    """Write a ledger and read it back."""
    async with LedgerClient(uri, config=SOON) as client:
        async with client.create_ledger(THREE) as ledger:
            await ledger.append_many([b"one", b"two"])
        async with client.open_ledger(ledger.id) as reader:
            return [entry.data async for batch in reader.read(0, 1) for entry in batch]


async def test_a_client_with_a_certificate_is_served(cluster: RunningCluster) -> None:
    assert await append_with(cluster.metadata) == [b"one", b"two"]


async def test_another_client_needs_a_role(cluster: RunningCluster) -> None:
    directory = certificates(cluster)
    directory.fill(clients=["alice"])
    uri = f"{cluster.metadata.partition('?')[0]}?client={directory.client_file('alice')}"
    assert await append_with(uri) == [b"one", b"two"], "her own ledger"
    async with (
        LedgerClient(cluster.metadata) as client,
        client.create_ledger(THREE) as ledger,
        LedgerClient(uri, config=SOON) as alice,
    ):
        await ledger.append(b"not hers")
        with pytest.raises(UnauthorizedError, match=r"User:alice may not read .*quire grant add"):
            async with alice.open_ledger(ledger.id) as reader:
                await reader.read_entry(0)
        with pytest.raises(UnauthorizedError, match=r"User:alice may not fence .*quire grant add"):
            await alice.recover_ledger(ledger.id)
        assert await ledger.append(b"not fenced") == 1


async def test_a_client_without_tls_is_refused_with_the_reason(cluster: RunningCluster) -> None:
    with pytest.raises(LedgerError, match="the bookie uses TLS and this client uses no TLS"):
        await append_with(cluster.metadata.partition("?")[0])


async def test_a_certificate_of_another_authority_is_refused(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    other = SecureDirectory(tmp_path)
    other.fill()
    (tmp_path / "ca.pem").write_bytes((certificates(cluster).path / "ca.pem").read_bytes())
    with pytest.raises(LedgerError, match=r"certificate|closed|lost|SSL"):
        await append_with(uri_for(cluster, other))


async def test_a_server_of_another_authority_is_not_trusted(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    other = SecureDirectory(tmp_path)
    other.fill()
    with pytest.raises(LedgerError, match="certificate verify failed"):
        await append_with(uri_for(cluster, other))


def test_commands_use_the_clients_file(cluster: RunningCluster) -> None:
    assert cluster.run("ledger", "append", stdin=b"one\n").returncode == 0
    bookie_id = cluster.told["bookies"][0]["id"]
    row = cluster.json("bookie", "info", bookie_id)
    assert row["tls"] is True
    assert row["admin"]["id"] == bookie_id
    assert cluster.run("cluster", "health").returncode == 0


def test_another_client_does_not_change_a_bookie(cluster: RunningCluster) -> None:
    directory = certificates(cluster)
    directory.fill(clients=["alice"])
    uri = f"{cluster.metadata.partition('?')[0]}?client={directory.client_file('alice')}"
    bookie = cluster.told["bookies"][0]["id"]
    refused = run_quire("bookie", "readonly", bookie, "on", metadata=uri)
    assert b"User:alice may not change this server: name it in super_users" in refused.stderr
    assert refused.returncode == ExitCode.REFUSED
    assert run_quire("bookie", "info", bookie, metadata=uri).returncode == 0
    for switch in ("on", "off"):
        assert cluster.run("bookie", "readonly", bookie, switch).returncode == 0


def test_an_admin_port_needs_a_certificate_but_for_health(cluster: RunningCluster) -> None:
    url = cluster.told["bookies"][0]["admin_url"]
    trusting = ssl.create_default_context(cafile=str(certificates(cluster).path / "ca.pem"))
    for path in ("livez", "readyz"):
        with urllib.request.urlopen(f"{url}/{path}", context=trusting) as answer:
            assert answer.status == 200
    for path in ("metrics", "api/v1/state"):
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(f"{url}/{path}", context=trusting)
        assert refused.value.code == 401
        refused.value.close()
    own = read_client_file(certificates(cluster).client_file("client")).context
    with urllib.request.urlopen(f"{url}/metrics", context=own) as answer:
        assert b"quire_bookie_tls_certificate_expires_seconds" in answer.read()
