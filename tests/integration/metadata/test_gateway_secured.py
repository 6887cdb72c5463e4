"""A gateway to a ZooKeeper whose nodes give rights to servers alone."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.cluster import ensure_cluster
from metadata.registry.registrar import ClientRegistration
from metadata.security.access_errors import AccessRefusedError
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.zookeeper.store import open_store
from quire.errors import ExitCode
from tests.integration.quire.command import run_quire
from tests.support.gateway.running_gateway import run_gateway
from tests.support.metadata.logins import write_login
from tests.support.metadata.samples import open_ledger

ALICE = "User:alice"


async def test_clients_need_no_rights_in_zookeeper(
    tmp_path: Path, own_server: EmbeddedZooKeeper, rng: random.Random
) -> None:
    plain, servers = f"{own_server.uri}/quire", write_login(tmp_path, "servers")
    store = await open_store(servers.uri(plain), rng=rng)
    await ensure_cluster(store, rng)
    done = await asyncio.to_thread(run_quire, "metadata", "secure", metadata=servers.uri(plain))
    assert done.returncode == ExitCode.DONE, done.stderr
    with pytest.raises(AccessRefusedError):
        await open_store(plain, rng=rng)
    gateway = await run_gateway(store, super_users=())
    alice = await gateway.connect(ALICE)
    registration = ClientRegistration(alice, rng)
    await registration.start()
    ledgers = LedgerStore(alice, rng, lambda: 5)
    ledger_id = await LedgerIdAllocator(alice, rng).allocate()
    await ledgers.create(replace(open_ledger(ledger_id), owner=ALICE))
    await ledgers.create(replace(open_ledger(10**12), owner=ALICE), is_chosen=True)
    assert [each async for each in ledgers.list_ledger_ids()] == [ledger_id, 10**12]
    chains = ChainStore(alice, rng, lambda: 5)
    await chains.create("orders")
    await chains.delete("orders")
    assert await ledgers.delete(ledger_id)
    await registration.aclose()
    assert await alice.children("/clients", fresh=True) == []
    done = await asyncio.to_thread(
        run_quire, "metadata", "secure", "--dry-run", "--json", metadata=servers.uri(plain)
    )
    assert b'"changed_count": 0' in done.stdout, "new nodes have the rights too"
    await gateway.aclose()
