"""Ledgers that a job publishes while a collection runs are kept (Spark design, exactly once)."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from ledger_client import (
    Chain,
    ClientEvent,
    LedgerClient,
    LedgerInfo,
    LedgerNotFoundError,
    LedgerUnreadable,
    MetadataConflictError,
    MetadataRefusedError,
    Quorum,
)
from metadata.paths import RESTORE, chain_path, ledger_path
from metadata.restore.restore_record import (
    RESTORE_NODE,
    RestoreRecord,
    RestoreState,
    accept_restore,
)
from metadata.store.memory import MemoryMetadataStore
from tests.support.ledger_client.cluster import QUICK, TestCluster
from tests.support.metadata.scripted_faults import ScriptedFaults

NAME = "orders"
START_MS = 1_700_000_000_000
TWO = Quorum.all(2)


class Setting:
    """A cluster whose wall clock the test sets."""

    def __init__(self) -> None:
        self.faults = ScriptedFaults(lambda call: call.is_write and call.path == chain_path(NAME))
        self.now_ms = START_MS
        self.cluster = TestCluster(self.faults, clock_ms=self.service_ms)

    def service_ms(self) -> int | None:
        return self.now_ms

    def client(self, *, ahead_ms: int = 0) -> LedgerClient:
        """Open a client on a host whose clock is wrong by some time."""
        client = LedgerClient.from_parts(
            MemoryMetadataStore(self.cluster.server),
            rng=Random(len(self.cluster.clients)),  # equal ones have one name, and contend for it
            wall_clock_ms=lambda: self.now_ms + ahead_ms,
            config=QUICK,
        )
        self.cluster.clients.append(client)
        return client


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    for _ in range(2):
        await setting.cluster.add_bookie()
    yield setting
    await setting.cluster.aclose()


async def written(client: LedgerClient, chain: Chain) -> LedgerInfo:
    async with client.create_ledger(TWO, metadata=chain.custom_metadata) as writer:
        await writer.append(b"row")
    return writer.info


async def test_a_ledger_that_is_published_during_a_collection_is_kept(setting: Setting) -> None:
    client = setting.client()
    chain = client.chain(NAME)
    await chain.create()
    published, lost = await written(client, chain), await written(client, chain)
    setting.now_ms += 10_000
    other = setting.client().chain(NAME)
    setting.faults.meanwhile = lambda: other.publish([published])
    assert await chain.collect(grace_s=1) == 1
    assert (await client.ledger_info(published.id)).is_closed
    with pytest.raises(LedgerNotFoundError):
        await client.ledger_info(lost.id)


async def test_nothing_is_collected_before_a_restore_is_accepted(setting: Setting) -> None:
    client = setting.client()
    chain = client.chain(NAME)
    await chain.create()
    unlinked = await written(client, chain)
    setting.now_ms += 10_000
    store = MemoryMetadataStore(setting.cluster.server)
    record = RestoreRecord(b"t" * 16, RestoreState.FINISHED, 5, b"d" * 32)
    await store.create(RESTORE, RESTORE_NODE.pack(record))
    with pytest.raises(MetadataRefusedError, match="accept-restore"):
        await chain.collect(grace_s=1)
    assert (await client.ledger_info(unlinked.id)).is_closed
    await accept_restore(store)
    assert await chain.collect(grace_s=1) == 1
    await store.aclose()


async def test_a_ledger_that_cannot_be_read_stops_no_list_and_no_collection(
    setting: Setting,
) -> None:
    client = setting.client()
    chain = client.chain(NAME)
    await chain.create()
    unreadable, lost = await written(client, chain), await written(client, chain)
    path = ledger_path(unreadable.id)
    store = MemoryMetadataStore(setting.cluster.server)
    await store.compare_and_set(path, b"\x91\x63", (await store.get(path)).version)
    assert [info.id async for info in client.list_ledgers()] == [lost.id]
    events: list[ClientEvent] = []
    other = LedgerClient.from_parts(
        MemoryMetadataStore(setting.cluster.server),
        rng=Random(9),
        wall_clock_ms=lambda: setting.now_ms,
        on_event=events.append,
    )
    setting.cluster.clients.append(other)
    assert [info.id async for info in other.list_ledgers()] == [lost.id]
    found = [event for event in events if isinstance(event, LedgerUnreadable)]
    assert [ledger_unreadable.ledger_id for ledger_unreadable in found] == [unreadable.id]
    assert "format version 99" in found[0].reason
    setting.now_ms += 10_000
    assert await chain.collect(grace_s=1) == 1
    with pytest.raises(MetadataConflictError, match="format version 99"):
        await client.ledger_info(unreadable.id)
    await client.delete_ledger(unreadable.id)


@pytest.mark.parametrize("ahead_ms", [-5_000, 0, 5_000])
async def test_the_grace_period_is_by_the_clock_of_the_service(
    setting: Setting, ahead_ms: int
) -> None:
    """Neither the clock of the host that collects counts, nor a slow one where jobs write."""
    client = setting.client()
    chain = client.chain(NAME)
    await chain.create()
    slow = setting.client(ahead_ms=-5_000)
    young = [await written(ledger_client, chain) for ledger_client in (client, slow)]
    collecting = setting.client(ahead_ms=ahead_ms).chain(NAME)
    setting.now_ms += 900
    assert await collecting.collect(grace_s=1) == 0
    await chain.publish([young[0]])
    setting.now_ms += 200
    assert await collecting.collect(grace_s=1) == 1
    with pytest.raises(LedgerNotFoundError):
        await client.ledger_info(young[1].id)


async def test_hosts_are_believed_where_the_service_says_no_time(setting: Setting) -> None:
    setting.cluster.server.tree._clock_ms = lambda: None
    client = setting.client()
    chain = client.chain(NAME)
    await chain.create()
    await written(client, chain)
    setting.now_ms += 2_000
    tree = setting.cluster.server.tree
    before = tree.get(chain_path(NAME)).version
    assert await setting.client(ahead_ms=-1_500).chain(NAME).collect(grace_s=1) == 0
    assert tree.get(chain_path(NAME)).version == before + 1, "nothing is written to learn the time"
    assert await chain.collect(grace_s=1) == 1
