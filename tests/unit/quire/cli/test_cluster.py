"""Verbs of `quire cluster`."""

import pytest

from metadata.brokers.broker_registration import (
    BROKER_CODEC,
    ApiVersions,
    BrokerRegistration,
    Listener,
)
from metadata.ids import BookieId
from metadata.paths import IN_SYNC, broker_path, in_sync_path
from metadata.registry.positions import NO_POSITION, PositionRecord, PositionStore
from metadata.repair.lifecycle import Lifecycle
from metadata.store.ephemeral import HeldNode, pack_held
from quire.cli.bookie_verbs import parser as bookies
from quire.cli.cluster import UnknownServerError, parser
from quire.errors import CommandError, ExitCode
from quire.operate.faulty_servers import Fault, FaultyServer, Kind
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger

A = BookieId("a")
LAST = PositionRecord(bytes(16), 5, (), "", None, "a1:4181", "/eu/r1/h1")


async def test_a_removed_bookie_is_no_problem(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("b", "c", "d")
    await cluster.format("a")
    await cluster.add(closed_ledger("bcd"))
    await cluster.set_state("a", Lifecycle.LOST)
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert code == ExitCode.DONE
    (warning,) = [each for each in row["warnings"] if each["where"] == "bookie a"]
    assert warning["what"] == "is lost, and no ledger has entries on it"
    assert "quire bookie remove a" in warning["advice"]
    assert row["bookies_not_active"] == {
        "draining": 0,
        "drained": 0,
        "removed": 0,
        "lost": 1,
        "limbo": 0,
        "unreadable": 0,
    }
    await cluster.set_state("a", Lifecycle.DRAINED, Lifecycle.REMOVED)
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert (code, row["bookies_known"]) == (ExitCode.DONE, 3)
    assert [each for each in row["warnings"] if each["where"] == "bookie a"] == []
    _, row = await cluster.run(parser(), "if-lost", "b", "-o", "json")
    assert row["down_already"] == []


async def test_a_server_that_cannot_be_reached_is_a_problem(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("b", "c")
    await cluster.format("a")
    await PositionStore(cluster.store).put(A, LAST, NO_POSITION)
    why = "the name does not resolve"
    cluster.faulty = [FaultyServer(Kind.BOOKIE, "b", Fault.UNREACHABLE, "b1:4181", why=why)]
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert (code, row["is_healthy"]) == (ExitCode.FINDINGS, False)
    (problem,) = [item for item in row["findings"] if item["where"] == "bookie b"]
    assert problem["what"] == f"cannot be reached at b1:4181: {why}"
    (down,) = [item for item in row["warnings"] if item["where"] == "bookie a"]
    assert down["what"].startswith("is not up (last at a1:4181, host h1, rack /eu/r1)")
    faulty = [(item["name"], item["fault"], item["host"]) for item in row["servers_faulty"]]
    assert faulty == [("b", "unreachable", None), ("a", "down", "h1")]
    _, listed = await cluster.run(bookies(), "list", "-o", "json")
    (away,) = [item for item in listed if item["id"] == "a"]
    assert (away["address"], away["location"], away["host"]) == ("a1:4181", "/eu/r1/h1", "h1")
    _, listed = await cluster.run(bookies(), "info", "a", "-o", "json")
    assert (listed["address"], listed["host"]) == ("a1:4181", "h1")


async def test_a_broker_that_never_returns_is_forgotten(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create()
    await cluster.store.create(in_sync_path(2), b"reports")
    _, row = await cluster.run(parser(), "forget", "broker", "2", "-o", "json")
    assert row == {"kind": "broker", "name": "2", "forgotten": True}
    assert await cluster.store.children(IN_SYNC, fresh=True) == []
    with pytest.raises(UnknownServerError):
        await cluster.run(parser(), "forget", "broker", "2")
    await add_broker(cluster, 3, "0.9.0")
    with pytest.raises(CommandError, match="is up"):
        await cluster.run(parser(), "forget", "broker", "3")


async def test_a_ledger_that_names_a_removed_bookie_is_a_problem(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("b", "c", "d")
    await cluster.format("a")
    await cluster.set_state("a", Lifecycle.LOST, Lifecycle.DRAINED, Lifecycle.REMOVED)
    await cluster.add(closed_ledger("abc"))
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert (code, [each["where"] for each in row["findings"]]) == (ExitCode.FINDINGS, ["bookie a"])


async def test_a_drained_bookie_is_a_warning(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("b", "c", "d")
    await cluster.format("a")
    await cluster.start("a", writable=False)
    code, _ = await cluster.run(parser(), "health", "-o", "json")
    assert code == ExitCode.FINDINGS, "it takes no new entries, and none wants it so"
    await cluster.set_state("a", Lifecycle.DRAINING)
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert code == ExitCode.DONE
    warning, unrepaired = row["warnings"]
    assert unrepaired["what"].startswith("no auditor runs")
    assert warning["what"] == "is draining: for a test"
    await cluster.set_state("a", Lifecycle.DRAINED)
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert (code, row["warnings"][0]["advice"]) == (ExitCode.DONE, "quire bookie remove a")


async def test_ledgers_of_a_bookie_that_is_down_are_one_finding(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("b", "c", "d")
    await cluster.format("a")
    await cluster.add(*(closed_ledger("abc", ledger_id=number) for number in range(10, 150)))
    code, row = await cluster.run(parser(), "health", "-o", "json")
    assert (code, row["finding_count"]) == (ExitCode.FINDINGS, 1)
    assert row["state"].startswith("Not healthy, one problem")
    assert row["findings"] == [
        {
            "where": "bookie a",
            "what": "is not up; 140 ledgers have entries on it (for example 10, 11, 12)",
            "advice": "start it: quire bookie run --data-dir DIR; if its disk is gone, start "
            "repair: quire repair run-worker --audit",
            "ledger_count": 140,
            "example_ledgers": [10, 11, 12],
        }
    ]
    assert "by_ledger" not in row
    _, text = await cluster.text(parser(), "health")
    assert len(text.splitlines()) < 25
    assert text.endswith("every ledger: quire cluster health --ledgers\n")


async def test_every_ledger_is_listed_when_that_is_wanted(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("b", "c")
    for name in "ad":
        await cluster.format(name)
    await cluster.add(*(closed_ledger("abc", ledger_id=number) for number in range(10, 150)))
    await cluster.add(closed_ledger("adc", ledger_id=200), closed_ledger("adc", ledger_id=201))
    code, row = await cluster.run(parser(), "health", "--ledgers", "-o", "json")
    assert code == ExitCode.FINDINGS
    assert [each["where"] for each in row["findings"]] == ["bookie a", "bookie d", "2 ledgers"]
    assert row["findings"][2]["what"] == (
        "entries may have no copy on a running bookie; these bookies are down: a, d (200, 201)"
    )
    ids = [each["ledger"] for each in row["by_ledger"]]
    assert ids == [*range(10, 150), 200, 201]
    assert row["by_ledger"][0] == {
        "ledger": 10,
        "kind": "finding",
        "what": "entries lack copies; these bookies are down: a",
        "advice": "start those bookies again, or wait for repair",
    }
    _, text = await cluster.text(parser(), "health", "--ledgers")
    assert sum("entries lack copies" in line for line in text.splitlines()) == 140


async def add_broker(cluster: MemoryCluster, broker_id: int, build: str) -> None:
    registration = BrokerRegistration(
        broker_id, (Listener("A", "host", 9092),), build=build, apis=(ApiVersions("Fetch", 4, 16),)
    )
    held = pack_held(HeldNode(bytes(16), 1, BROKER_CODEC.pack("a broker", registration)))
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
