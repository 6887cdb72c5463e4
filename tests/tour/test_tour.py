"""Every capability of Quire once, on one secure cluster of real processes.

Leaves each capability's other cases, and its failures, to `tests/integration`. The tests share the
cluster and change it in their order, so that the last ones may stop a bookie.
"""

import asyncio
import base64
import json
import os
import random
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ledger_client import LedgerClient, LedgerFencedError, Quorum
from ledger_client.errors import LedgerError
from quire.errors import ExitCode
from quire.identity.client_file import read_client_file
from quire.local.local_server import LocalServer
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import BOOKIE_SECURITY
from tests.integration.quire.command import RunningCluster, run_as_user, start_cluster
from tests.integration.quire.identity.known_clients import read_all
from tests.until import WAIT_S, until

THREE = Quorum(ensemble=3, write=3, ack=2)
SEED = 7
TOPIC = "orders"
LINES = b"one\ntwo\nthree\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Start four bookies, two brokers and a console, as a user does."""
    directory = tmp_path_factory.mktemp("tour")
    running = start_cluster(directory, 4, 2, "--console", secure=True, as_user=True)
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def certificates(cluster: RunningCluster) -> SecureDirectory:
    found = SecureDirectory(Path(cluster.told["data"]) / "tls")
    found.fill(clients=["alice"])
    return found


def kafka_settings(cluster: RunningCluster, certificates: SecureDirectory) -> dict[str, Any]:
    """Return librdkafka's settings for a client with a certificate."""
    return {
        "bootstrap.servers": ",".join(each["address"] for each in cluster.told["brokers"]),
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.path / "ca.pem"),
        "ssl.certificate.location": str(certificates.path / "client.pem"),
        "ssl.key.location": str(certificates.path / "client-key.pem"),
    }


async def test_a_ledger_is_written_followed_and_taken_over(cluster: RunningCluster) -> None:
    async with LedgerClient(cluster.metadata) as client, LedgerClient(cluster.metadata) as other:
        ledger = await client.create_ledger(THREE)
        await ledger.append_many([b"one", b"two"])
        async with other.open_ledger(ledger.id) as reader:
            tail = reader.tail(0)
            assert [entry.data async for entry in _first(tail, 2)] == [b"one", b"two"]
        await other.recover_ledger(ledger.id)
        with pytest.raises(LedgerFencedError):
            await ledger.append(b"late")
        with pytest.raises(LedgerFencedError):
            await ledger.aclose()
        assert await read_all(other, ledger.id) == [b"one", b"two"]


async def _first(batches: Any, count: int) -> Any:
    """Yield the first entries of batches."""
    async for batch in batches:
        for entry in batch:
            yield entry
            count -= 1
            if not count:
                return


async def test_an_in_sync_ledger_needs_its_members(cluster: RunningCluster) -> None:
    async with LedgerClient(cluster.metadata) as client:
        async with client.create_ledger(Quorum.in_sync(3, 2)) as ledger:
            await ledger.append(b"on every member")
        info = await client.ledger_info(ledger.id)
        assert info.last_entry_id == 0
        assert await read_all(client, ledger.id) == [b"on every member"]


async def test_a_chain_of_ledgers(cluster: RunningCluster) -> None:
    async with LedgerClient(cluster.metadata) as client:
        chain = client.chain("shifts")
        await chain.create()
        async with client.create_ledger(THREE, metadata=chain.custom_metadata) as ledger:
            await ledger.append(b"an entry")
        await chain.publish([ledger.info])
        links = [link async for _, link in chain.links(0, 1) if link is not None]
        assert [linked_ledger.ledger_id for link in links for linked_ledger in link.ledgers] == [
            ledger.id
        ]


def test_verbs_of_ledgers(cluster: RunningCluster, tmp_path: Path) -> None:
    ledger = str(cluster.json("ledger", "append", stdin=LINES)["ledger_id"])
    assert cluster.run("ledger", "read", ledger).stdout == LINES
    assert cluster.json("ledger", "verify", ledger)["is_well"]
    file = tmp_path / "exported"
    assert cluster.run("ledger", "export", ledger, str(file)).returncode == 0
    copied = str(cluster.json("ledger", "import", str(file))["ledger_id"])
    assert cluster.run("ledger", "read", copied).stdout == LINES
    assert cluster.json("ledger", "delete", copied, "--yes")
    assert copied not in [str(row["ledger_id"]) for row in cluster.json("ledger", "list")]


def test_payloads_are_encrypted(cluster: RunningCluster, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    key = base64.b64encode(b"1" * 32).decode()
    keys.write_text(f'current = "2026-11"\n[keys]\n"2026-11" = "{key}"\n')
    keys.chmod(0o600)
    told = cluster.json("ledger", "append", "--key-file", str(keys), stdin=LINES)
    ledger = str(told["ledger_id"])
    assert cluster.run("ledger", "read", ledger).returncode == ExitCode.REFUSED
    assert cluster.run("ledger", "read", ledger, "--key-file", str(keys)).stdout == LINES


def test_a_topic_by_commands(cluster: RunningCluster) -> None:
    assert cluster.run("topic", "create", TOPIC, "--partitions", "2").returncode == 0
    assert cluster.run("topic", "produce", TOPIC, stdin=LINES).returncode == 0
    read = cluster.run("topic", "consume", TOPIC)
    assert sorted(read.stdout.splitlines()) == sorted(LINES.splitlines())
    assert cluster.json("topic", "show", TOPIC)


def test_a_transaction_and_a_group_of_stock_clients(
    cluster: RunningCluster, certificates: SecureDirectory
) -> None:
    settings = kafka_settings(cluster, certificates)
    producer = Producer({**settings, "transactional.id": "tour"})
    producer.init_transactions(WAIT_S)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"not", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=0)
        end(WAIT_S)
    group = {"group.id": "tour", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group, "isolation.level": "read_committed"})
    try:
        consumer.subscribe([TOPIC])
        values: list[bytes] = []
        while len(values) < 4:
            message = consumer.poll(WAIT_S)
            assert message is not None, values
            assert message.error() is None
            values.append(message.value() or b"")
        assert sorted(values) == sorted([*LINES.splitlines(), b"kept"])
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_rights_of_users(cluster: RunningCluster, certificates: SecureDirectory) -> None:
    """A client with its own name needs a role at a ledger, and a rule at a topic."""
    uri = f"{cluster.metadata.partition('?')[0]}?client={certificates.client_file('alice')}"
    ledger = str(cluster.json("ledger", "append", stdin=LINES)["ledger_id"])
    assert run_as_user("ledger", "read", ledger, metadata=uri).returncode == ExitCode.REFUSED
    assert cluster.run("grant", "add", "User:alice", "reader", f"ledger:{ledger}").returncode == 0
    assert run_as_user("ledger", "read", ledger, metadata=uri).stdout == LINES
    assert (
        cluster.run("quota", "set", "--user", "alice", "append_byte_rate=1000000").returncode == 0
    )
    assert cluster.json("quota", "list")


async def test_a_gateway_for_a_client_without_zookeeper(
    cluster: RunningCluster, certificates: SecureDirectory, tmp_path: Path
) -> None:
    options = {**certificates.certificate_options("bookie"), **BOOKIE_SECURITY}
    del options["authorizer"]
    server = f"{cluster.metadata.partition('?')[0]}?client={certificates.client_file('bookie')}"
    flags = {"metadata": server, "port": "0"}
    log = tmp_path / "gateway.log"
    gateway = LocalServer(
        ("gateway", "run"), "gateway", flags, options, log, ready_timeout_s=WAIT_S
    )
    await gateway.start()
    try:
        uri = f"gateway://{gateway.address}?client={certificates.client_file('alice')}"
        async with LedgerClient(uri) as alice, LedgerClient(cluster.metadata) as client:
            async with alice.create_ledger(THREE) as ledger:
                await ledger.append(b"hers")
            assert await read_all(alice, ledger.id) == [b"hers"]
            async with client.create_ledger(THREE) as foreign:
                await foreign.append(b"not hers")
            with pytest.raises(LedgerError, match="alice"):
                await alice.delete_ledger(foreign.id)
    finally:
        await gateway.stop()
    cluster.run("cluster", "forget", "gateway", gateway.address)  # else its absence is a finding


def test_metrics_and_the_console(cluster: RunningCluster, certificates: SecureDirectory) -> None:
    own = read_client_file(certificates.client_file("client")).context
    for kind in ("bookie", "broker"):
        url = cluster.told[f"{kind}s"][0]["admin_url"]
        with urllib.request.urlopen(f"{url}/metrics", context=own) as answer:
            assert f"quire_{kind}_" in answer.read().decode()
    with urllib.request.urlopen(cluster.told["console"]["address"]) as answer:
        assert b"token" in answer.read()  # a secure cluster asks who reads it


def test_metadata_is_dumped_and_checked(cluster: RunningCluster) -> None:
    dump = cluster.run("metadata", "dump").stdout
    assert dump.count(b"\n") > 20
    assert cluster.run("metadata", "check").returncode == 0


async def test_health_and_versions(cluster: RunningCluster) -> None:
    # On a busy machine a member of an open ledger may be late, leave, and be copied to again.
    await until(lambda: cluster.run("cluster", "health").returncode == 0)
    assert cluster.json("cluster", "version")["state"].startswith("All ")


def test_a_bookie_is_drained_and_used_again(cluster: RunningCluster) -> None:
    bookie = cluster.told["bookies"][3]["id"]
    assert cluster.json("bookie", "drain", bookie)["lifecycle"] == "draining"
    assert cluster.json("bookie", "undrain", bookie)["lifecycle"] == "active"


async def test_appends_go_on_without_a_bookie(cluster: RunningCluster) -> None:
    """Rule 5: the writer replaces a killed member, and nothing that was confirmed is lost."""
    pids = {row["address"]: row["pid"] for row in cluster.told["bookies"]}
    rng = random.Random(SEED)
    async with LedgerClient(cluster.metadata) as client:
        async with client.create_ledger(THREE) as ledger:
            await ledger.append(b"before")
            os.kill(rng.choice(sorted(pids.values())), signal.SIGKILL)
            await ledger.append_many([b"%d" % number for number in range(100)])
        assert len(await read_all(client, ledger.id)) == 101

    def is_reported() -> bool:
        told = cluster.run("cluster", "health", "-o", "json")
        return told.returncode == ExitCode.FINDINGS and bool(json.loads(told.stdout)["findings"])

    while not await asyncio.to_thread(is_reported):
        pass  # its registration ends with its session
