"""Deletions by clients of a gateway are in its audit log."""

import logging
import random

import pytest

from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import DELETION_SHARDS, chain_path, deletion_shard_path, ledger_path
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.gateway.running_gateway import run_gateway
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.quire.gateway.test_requests import ALICE, new_ledger


async def test_ledgers_and_chains(caplog: pytest.LogCaptureFixture) -> None:
    gateway = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()))
    alice = await gateway.connect(ALICE)
    ledger_id = await new_ledger(alice, ALICE)
    chains = ChainStore(alice, random.Random(2), lambda: 5)
    await chains.create("a")
    with caplog.at_level(logging.INFO):
        await LedgerStore(alice, random.Random(1), lambda: 5).delete(ledger_id)
        await chains.delete("a")
    assert results(caplog) == [
        ("done", ALICE, ledger_path(ledger_id)),
        ("done", ALICE, chain_path("a")),
    ]
    await alice.aclose()
    await gateway.aclose()


async def test_a_deletion_that_may_have_been_done(caplog: pytest.LogCaptureFixture) -> None:
    faults = ScriptedFaults()
    gateway = await run_gateway(MemoryMetadataStore(MemoryMetadataServer(faults)))
    alice = await gateway.connect(ALICE)
    ledger_id = await new_ledger(alice, ALICE)
    await gateway.store.create(deletion_shard_path(ledger_id % DELETION_SHARDS), b"")
    faults.acts = ["lost"]
    with caplog.at_level(logging.INFO):
        await LedgerStore(alice, random.Random(1), lambda: 5).delete(ledger_id)
    assert results(caplog) == [("unknown", ALICE, ledger_path(ledger_id))]
    await alice.aclose()
    await gateway.aclose()


def results(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    lines = [getattr(record, "fields", {}) for record in caplog.records]
    deleted = [line for line in lines if line.get("act") == "deletion"]
    return [(each["result"], each["who"], each["path"]) for each in deleted]
