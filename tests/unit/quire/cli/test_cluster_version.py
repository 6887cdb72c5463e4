"""`quire cluster version` in a cluster with servers of several versions."""

from metadata.brokers.broker_registration import (
    ApiVersions,
    BrokerRegistration,
    Listener,
    pack_broker,
)
from metadata.paths import broker_path
from metadata.store.ephemeral import HeldNode, pack_held
from quire.cli.cluster import parser
from quire.errors import ExitCode
from tests.support.quire.memory_cluster import MemoryCluster


async def add_broker(cluster: MemoryCluster, broker_id: int, build: str) -> None:
    registration = BrokerRegistration(
        broker_id, (Listener("A", "host", 9092),), build=build, apis=(ApiVersions("Fetch", 4, 16),)
    )
    held = pack_held(HeldNode(bytes(16), 1, pack_broker(registration)))
    await cluster.store.create(broker_path(broker_id), held)


async def test_servers_of_several_versions(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create()
    await cluster.start("a", build="0.9.0")
    await cluster.start("b", build="0.9.0")
    await add_broker(cluster, 1, "0.9.0")
    code, row = await cluster.run(parser(), "version", "-o", "json")
    assert (code, row["state"]) == (ExitCode.DONE, "All 3 servers run 0.9.0.")
    assert row["servers"][0] == {
        "kind": "bookie",
        "id": "a",
        "build": "0.9.0",
        "speaks": "1-1",
        "wire_versions": [1, 1],
    }
    assert row["servers"][2]["api_versions"] == {"Fetch": [4, 16]}
    await add_broker(cluster, 2, "0.8.0")
    code, row = await cluster.run(parser(), "version", "-o", "json")
    assert (code, row["oldest"]) == (ExitCode.FINDINGS, "0.8.0")
    assert row["state"] == "1 of 4 servers still runs 0.8.0: broker 2."
    _, text = await cluster.text(parser(), "version")
    assert "broker  1   0.9.0" in text
    assert "Fetch 4-16" in text


async def test_a_cluster_without_servers(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    code, row = await memory_cluster.run(parser(), "version", "-o", "json")
    assert (code, row["oldest"], row["servers"]) == (ExitCode.DONE, None, [])
