"""Tests of recovery from states that a writer leaves only at one exact moment, on real bookies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest

from bookie.wire.messages import Status
from ledger_client import ClientConfig, LedgerClient
from ledger_client.client_services import ClientServices, ClientSettings
from ledger_client.recovery.recoverer import Recoverer
from metadata.ids import Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.zookeeper.store import open_store
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from quire.server.overriding import override
from tests.campaign.direct import open_direct
from tests.integration.faults.appending import check_told
from tests.integration.faults.injected_syncs import slow_syncs
from tests.integration.faults.raw_ledger import TIMEOUT_S, RawLedger, make_ledger

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]
PAYLOADS = [b"entry %d" % number for number in range(10)]
SYNC_DELAY_S = 0.5
QUEUED_S = 0.2
QUICK = ClientConfig(read_timeout_s=1.0, add_timeout_s=1.0)
"""For clients that read from a paused bookie: they read from the others within this time."""


@pytest.mark.parametrize("other_has_it", [False, True])
async def test_a_lac_in_the_middle_of_a_batch(cluster: LocalCluster, *, other_has_it: bool) -> None:
    """One bookie holds 0..9 as one batch, of which only the first half is known to be confirmed.

    If no other one has the second half, it was not acknowledged: whether it is kept depends on
    which answers arrive first (rule 7.3).
    """
    async with open_direct(cluster.metadata_uri) as direct:
        ledger = await make_ledger(direct, [bookie.id for bookie in cluster.bookies[:3]], ack=2)
        one, two, three = ledger.metadata.last_fragment.ensemble
        await ledger.store(one, 0, PAYLOADS[:5])
        await ledger.store(two, 0, PAYLOADS)
        if other_has_it:
            await ledger.store(three, 0, PAYLOADS)
        await ledger.report_lac(two, 4)
        async with LedgerClient(cluster.metadata_uri) as client:
            info = await client.recover_ledger(ledger.id)
        assert info.last_entry_id is not None
        assert info.last_entry_id in ((9,) if other_has_it else (4, 9))
        kept = PAYLOADS[: info.last_entry_id + 1]
        assert info.length == sum(map(len, kept))
        await check_told(cluster.metadata_uri, ledger.id, kept)


async def test_two_recoverers_with_different_frozen_lacs(cluster: LocalCluster) -> None:
    """The first waits before its close; the second, which had a higher LAC, closes first."""
    one, _, three = cluster.bookies[:3]
    uri = cluster.metadata_uri
    async with open_direct(uri) as direct:
        ledger = await make_ledger(direct, [bookie.id for bookie in cluster.bookies[:3]], ack=2)
        ensemble = ledger.metadata.last_fragment.ensemble
        for bookie_id, lac in zip(ensemble, (7, 4, 4), strict=True):
            await ledger.store(bookie_id, 0, PAYLOADS)
            await ledger.report_lac(bookie_id, lac)
        async with held_recovery(uri, ledger) as first:
            with paused(one):
                first.start()
                await asyncio.wait_for(first.is_held.wait(), TIMEOUT_S)
            async with LedgerClient(uri, config=QUICK) as client:
                with paused(three):
                    info = await client.recover_ledger(ledger.id)
            first.resume.set()
            adopted, _ = await asyncio.wait_for(first.result(), TIMEOUT_S)
        assert info.last_entry_id == 9
        stored = await direct.metadata(ledger.id)
        assert adopted == stored
        assert (stored.last_entry_id, stored.length) == (info.last_entry_id, info.length)
        await check_told(cluster.metadata_uri, ledger.id, PAYLOADS)


@pytest.mark.parametrize("ack", [2, 3])
async def test_an_add_that_is_queued_and_not_yet_synced(cluster: LocalCluster, ack: int) -> None:
    """A negative never overtakes an accepted add (protocol rule 4.3)."""
    members = cluster.bookies[:3]
    async with (
        open_direct(cluster.metadata_uri) as direct,
        LedgerClient(cluster.metadata_uri) as client,
    ):
        ledger = await make_ledger(direct, [member.id for member in members], ack=ack)
        ensemble = ledger.metadata.last_fragment.ensemble
        for bookie_id in ensemble:
            await ledger.store(bookie_id, 0, PAYLOADS[:5])
        async with slow_syncs([member.pid for member in members], SYNC_DELAY_S):
            lengths = sum(map(len, PAYLOADS[:5]))
            sent = [
                ledger.send(bookie, 5, PAYLOADS[5:], lac=-1, length_before=lengths)
                for bookie in ensemble
            ]
            await asyncio.sleep(QUEUED_S)
            assert not any(future.done() for future in sent), "accepted, and not durable yet"
            info = await client.recover_ledger(ledger.id)
            outcomes = [await asyncio.wait_for(future, TIMEOUT_S) for future in sent]
        assert outcomes == [Status.OK] * 3
        assert info.last_entry_id == 9
        await check_told(cluster.metadata_uri, ledger.id, PAYLOADS)


@pytest.mark.parametrize("ack", [2, 3])
async def test_adds_in_the_socket_of_a_paused_bookie(cluster: LocalCluster, ack: int) -> None:
    """Entries that it acknowledges after its pause are in the ledger, or were refused."""
    members = cluster.bookies[:3]
    uri = cluster.metadata_uri
    async with open_direct(uri) as direct, LedgerClient(uri, config=QUICK) as client:
        ledger = await make_ledger(direct, [member.id for member in members], ack=ack)
        one, two, three = ledger.metadata.last_fragment.ensemble
        await ledger.store(one, 0, PAYLOADS[:1])
        with paused(members[0]):
            late = ledger.send(one, 1, PAYLOADS[1:], length_before=len(PAYLOADS[0]))
            await ledger.store(two, 0, PAYLOADS)
            if ack == 3:
                await ledger.store(three, 0, PAYLOADS)
            info = await client.recover_ledger(ledger.id)
        assert await asyncio.wait_for(late, TIMEOUT_S) in (Status.OK, Status.FENCED)
        assert info.last_entry_id == 9
        assert await client.recover_ledger(ledger.id) == info
        await check_told(cluster.metadata_uri, ledger.id, PAYLOADS)


class paused:  # noqa: N801  used as a statement
    """A block during which a bookie's process is paused."""

    def __init__(self, bookie: LocalBookie) -> None:
        self._bookie = bookie

    def __enter__(self) -> None:
        self._bookie.pause()

    def __exit__(self, *_: object) -> None:
        self._bookie.resume()


class HoldingStore(LedgerStore):
    """Stores a close only when the test allows it."""

    is_held: asyncio.Event
    resume: asyncio.Event

    @override
    async def compare_and_set(self, metadata: LedgerMetadata, expected: Version) -> Version:
        if metadata.state is LedgerState.CLOSED:
            self.is_held.set()
            await self.resume.wait()
        return await super().compare_and_set(metadata, expected)


class HeldRecovery:
    """A recovery that waits before it stores its close."""

    def __init__(
        self, work: Awaitable[tuple[LedgerMetadata, Version]], store: HoldingStore
    ) -> None:
        self.is_held = store.is_held = asyncio.Event()
        self.resume = store.resume = asyncio.Event()
        self._work = work
        self._task: asyncio.Future[tuple[LedgerMetadata, Version]] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._work)

    async def result(self) -> tuple[LedgerMetadata, Version]:
        """Wait for its end."""
        assert self._task is not None, "it was started"
        return await self._task


@asynccontextmanager
async def held_recovery(uri: str, ledger: RawLedger) -> AsyncIterator[HeldRecovery]:
    """Prepare a recovery over separate connections."""
    rng = Random()
    settings = ClientSettings(
        open_store=partial(open_store, uri, rng=rng),
        address=uri,
        config=QUICK,
        rng=rng,
        wall_clock_ms=lambda: 0,
    )
    services = ClientServices(settings, await settings.open_store())
    await services.start()
    try:
        store = HoldingStore(services.store, rng, lambda: 0)
        metadata, version = await store.get(ledger.metadata.ledger_id, fresh=True)
        recoverer = Recoverer(
            metadata=metadata,
            version=version,
            keys=ledger.keys,
            pool=services.pool,
            placement=services.placement,
            ledgers=store,
            config=QUICK,
            rng=rng,
        )
        yield HeldRecovery(recoverer.recover(timeout_s=TIMEOUT_S), store)
    finally:
        await services.aclose()
