"""`quire cluster version` in a cluster with servers of several versions."""

from metadata.brokers.broker_registration import BrokerRegistration, Listener, pack_broker
from metadata.brokers.broker_versions import BrokerVersions, pack_broker_versions
from metadata.paths import broker_path, broker_versions_path
from metadata.store.ephemeral import HeldNode, pack_held
from quire.cli.cluster import parser
from quire.errors import ExitCode
from quire.server_versions import UNKNOWN_BUILD
from tests.support.quire.memory_cluster import MemoryCluster


async def add_broker(cluster: MemoryCluster, broker_id: int, build: str | None) -> None:
    """Register a broker; without a build, one of a release that reported none."""
    registration = BrokerRegistration(broker_id, (Listener("A", "host", 9092),))
    held = pack_held(HeldNode(bytes(16), 1, pack_broker(registration)))
    await cluster.store.create(broker_path(broker_id), held)
    if build is not None:
        versions = pack_broker_versions(BrokerVersions(build, {"Fetch": (4, 16)}))
        path = broker_versions_path(broker_id)
        await cluster.store.create(path, pack_held(HeldNode(bytes(16), 1, versions)))


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
    await add_broker(cluster, 2, None)
    code, row = await cluster.run(parser(), "version", "-o", "json")
    assert (code, row["oldest"]) == (ExitCode.FINDINGS, UNKNOWN_BUILD)
    assert row["state"] == f"1 of 4 servers still runs {UNKNOWN_BUILD}: broker 2."
    _, text = await cluster.text(parser(), "version")
    assert "broker  1   0.9.0" in text
    assert "Fetch 4-16" in text


async def test_a_cluster_without_servers(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create()
    code, row = await memory_cluster.run(parser(), "version", "-o", "json")
    assert (code, row["oldest"], row["servers"]) == (ExitCode.DONE, None, [])
