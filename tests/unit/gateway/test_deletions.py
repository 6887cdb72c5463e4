"""Deletions by clients of a gateway are in its audit log."""

import logging
import random

import pytest

from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import chain_path, ledger_path
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.gateway.running_gateway import run_gateway
from tests.unit.gateway.test_requests import ALICE, new_ledger


async def test_ledgers_and_chains(caplog: pytest.LogCaptureFixture) -> None:
    gateway = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()))
    alice = await gateway.connect(ALICE)
    ledger_id = await new_ledger(alice, ALICE)
    chains = ChainStore(alice, random.Random(2), lambda: 5)
    await chains.create("a")
    with caplog.at_level(logging.INFO):
        await LedgerStore(alice, random.Random(1), lambda: 5).delete(ledger_id)
        await chains.delete("a")
    lines = [getattr(each, "fields", {}) for each in caplog.records]
    deleted = [each for each in lines if each.get("act") == "deletion"]
    assert [(each["who"], each["path"]) for each in deleted] == [
        (ALICE, ledger_path(ledger_id)),
        (ALICE, chain_path("a")),
    ]
    await alice.aclose()
    await gateway.aclose()
