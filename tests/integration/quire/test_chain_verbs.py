"""Tests of every verb about chains, as a process, with a real cluster."""

import asyncio

import pytest

from ledger_client import LedgerClient, Quorum
from quire.errors import ExitCode
from tests.integration.quire.command import RunningCluster


async def publish(metadata: str, name: str, count: int) -> list[int]:
    """Write this many ledgers and publish each in a separate link."""
    ids: list[int] = []
    async with LedgerClient(metadata) as client:
        chain = client.chain(name)
        for _ in range(count):
            async with client.create_ledger(
                Quorum.all(2), metadata=chain.custom_metadata
            ) as writer:
                await writer.append(b"an entry")
            await chain.publish([writer.info], application="test", batch=len(ids))
            ids.append(int(writer.id))
    return ids


@pytest.mark.long
def test_a_chain_from_creation_to_deletion(cluster: RunningCluster) -> None:
    assert cluster.run("chain", "create", "orders").returncode == 0
    assert cluster.run("chain", "create", "orders").returncode == ExitCode.REFUSED
    ids = asyncio.run(publish(cluster.told["metadata"], "orders", 3))
    assert cluster.json("chain", "list") == [
        {"chain": "orders", "first_link": 0, "next_link": 3},
    ]
    shown = cluster.json("chain", "show", "orders")
    assert [each["ledger_id"] for each in shown] == ids
    assert [each["batch"] for each in shown] == [0, 1, 2]
    assert {each["application"] for each in shown} == {"test"}

    for words in (("trim", "orders", "2"), ("collect", "orders"), ("delete", "orders")):
        refused = cluster.run("chain", *words)
        assert refused.returncode == ExitCode.REFUSED
        assert b"nothing was changed" in refused.stderr
    assert len(cluster.json("chain", "show", "orders")) == 3

    assert cluster.json("chain", "trim", "orders", "2", "--yes")["first_link"] == 2
    collected = cluster.json("chain", "collect", "orders", "--grace-hours", "0", "--yes")
    assert collected["deleted_ledgers"] == 2
    assert [each["ledger_id"] for each in cluster.json("chain", "show", "orders")] == ids[2:]
    assert cluster.json("chain", "delete", "orders", "--yes")["deleted"]
    assert cluster.json("chain", "list") == []
    assert cluster.json("ledger", "show", str(ids[2]))["state"] == "closed"


def test_unknown_chains_are_reported(cluster: RunningCluster) -> None:
    missing = cluster.run("chain", "show", "nothing")
    assert missing.returncode == ExitCode.NOT_FOUND
    assert b"there is no chain 'nothing'" in missing.stderr
    assert cluster.run("chain", "create", "a/b").returncode == ExitCode.USAGE
    assert cluster.run("chain", "collect", "x", "--grace-hours", "-1").returncode == ExitCode.USAGE
