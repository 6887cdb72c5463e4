"""Repair copies a ledger between real bookies without its password; its owner reads the copy."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from ledger_client import LedgerClient, Quorum, UnauthorizedError
from ledger_client.client_services import ClientServices
from ledger_client.copying import CopyLimits, CopyServices, FragmentCopier
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.repair_key import read_or_create_repair_key
from quire.repair.attempts import read_master_key
from quire.repair.ledger_repair import NO_KEY
from tests.support.bookie.bookie_machine import Machine, Running

COUNT = 300
PASSWORD = b"a secret password"
TIMEOUT_S = 5.0


class Cluster:
    """Three real bookies, and clients with and without the key of repair."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bookies: dict[BookieId, Running] = {}
        self.names: dict[BookieId, str] = {}
        self._clients: list[LedgerClient] = []

    async def start(self) -> None:
        for name in "abc":
            bookie_id = await self.machine.format(name)
            self.names[bookie_id] = name
            await self.restart(bookie_id)

    async def restart(self, bookie_id: BookieId) -> None:
        self.bookies[bookie_id] = await self.machine.start(self.names[bookie_id])

    def client(self, credentials: bytes = b"") -> LedgerClient:
        seed = Random(len(self._clients))
        client = LedgerClient.from_parts(
            self.machine.store(), rng=seed, wall_clock_ms=lambda: 5, credentials=credentials
        )
        self._clients.append(client)
        return client

    async def repair_key(self) -> bytes:
        store = self.machine.store()
        key = await read_or_create_repair_key(store, self.machine.rng)
        await store.aclose()
        return key

    async def stop(self, bookie_id: BookieId) -> None:
        await self.bookies.pop(bookie_id).stop()

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
        for bookie_id in list(self.bookies):
            await self.stop(bookie_id)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(Machine(tmp_path))
    await cluster.start()
    yield cluster
    await cluster.aclose()


def payload(number: int) -> bytes:
    return b"%08d" % number + b"." * (number % 100)


async def write_closed(client: LedgerClient, digest: str) -> LedgerId:
    quorum = Quorum(ensemble=2, write=2, ack=2)
    async with client.create_ledger(quorum, digest=digest, password=PASSWORD) as writer:
        for first in range(0, COUNT, 30):
            await writer.append_many(payload(first + number) for number in range(30))
    return LedgerId(writer.id)


def copier(services: ClientServices, keys: LedgerKeys) -> FragmentCopier:
    return FragmentCopier(
        services=CopyServices(services.pool, services.ledgers, services.config, services.rng),
        keys=keys,
        limits=CopyLimits(request_bytes_max=4096, requests_at_once=2),
        throttle=services.for_writers.copy_throttle,
        on_progress=lambda _: None,
    )


async def key_of(services: ClientServices, metadata: LedgerMetadata) -> bytes | None:
    ensemble = metadata.fragments[0].ensemble
    return await read_master_key(services.pool, metadata.ledger_id, ensemble, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("digest", ["crc32c", "hmac-sha256"])
async def test_the_owner_reads_what_repair_copied(cluster: Cluster, digest: str) -> None:
    owner = cluster.client()
    ledger_id = await write_closed(owner, digest)
    repair = cluster.client(await cluster.repair_key())  # made after the bookies' start
    services = await repair._session.services()
    metadata, _ = await services.ledgers.get(ledger_id, fresh=True)
    master_key = await key_of(services, metadata)
    assert master_key == LedgerKeys.of(metadata, PASSWORD).master_key
    keys = LedgerKeys.with_master_key(metadata, master_key)
    ensemble = metadata.fragments[0].ensemble
    target = next(bookie for bookie in cluster.bookies if bookie not in ensemble)
    after, _ = await copier(services, keys).copy_fragment(
        ledger_id, EntryId(0), target, ensemble[0]
    )
    assert after.fragments[0].ensemble == (target, ensemble[1])
    for bookie in ensemble:
        await cluster.stop(bookie)
    async with cluster.client().open_ledger(ledger_id, password=PASSWORD) as reader:
        found = [entry.data async for batch in reader.read(0, COUNT - 1) for entry in batch]
    assert found == [payload(number) for number in range(COUNT)]
    with pytest.raises(UnauthorizedError):
        await cluster.client().open_ledger(ledger_id, password=b"wrong")


async def test_a_copy_without_entries_needs_no_key_while_the_ledger_is_compared(
    cluster: Cluster,
) -> None:
    """The auditor and the worker of one process share a client: one attaches the ledger's key, and
    the other has none for a position without entries.
    """
    async with cluster.client().create_ledger(
        Quorum(ensemble=2, write=2, ack=2), password=PASSWORD
    ) as writer:
        pass
    ledger_id = LedgerId(writer.id)
    services = await cluster.client()._session.services()
    metadata, _ = await services.ledgers.get(ledger_id, fresh=True)
    ensemble = metadata.fragments[0].ensemble
    target = next(bookie for bookie in cluster.bookies if bookie not in ensemble)
    services.pool.attach(ledger_id, LedgerKeys.of(metadata, PASSWORD).master_key)
    without = LedgerKeys.with_master_key(metadata, NO_KEY)
    after, _ = await copier(services, without).copy_fragment(
        ledger_id, EntryId(0), target, ensemble[0]
    )
    assert after.fragments[0].ensemble == (target, ensemble[1])
    services.pool.detach(ledger_id)


async def test_without_the_key_of_repair_no_master_key_is_returned(cluster: Cluster) -> None:
    owner = cluster.client()
    ledger_id = await write_closed(owner, "crc32c")
    services = await owner._session.services()
    metadata, _ = await services.ledgers.get(ledger_id, fresh=True)
    with pytest.raises(UnauthorizedError, match="anonymous may not do this"):
        await key_of(services, metadata)
    await cluster.repair_key()
    wrong = await cluster.client(bytes(32))._session.services()
    with pytest.raises(UnauthorizedError, match="not the key of repair"):
        await key_of(wrong, metadata)


async def test_a_restarted_bookie_returns_the_key(cluster: Cluster) -> None:
    owner = cluster.client()
    ledger_id = await write_closed(owner, "crc32c")
    repair = await cluster.client(await cluster.repair_key())._session.services()
    metadata, _ = await repair.ledgers.get(ledger_id, fresh=True)
    member = metadata.fragments[0].ensemble[0]
    await cluster.stop(member)
    await cluster.restart(member)
    found = await read_master_key(repair.pool, ledger_id, [member], timeout_s=TIMEOUT_S)
    assert found == LedgerKeys.of(metadata, PASSWORD).master_key
