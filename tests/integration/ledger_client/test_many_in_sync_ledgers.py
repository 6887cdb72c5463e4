"""Many in-sync ledgers of one client while a bookie leaves and returns (rules 5.6, 11.2, 11.3)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from ledger_client import (
    ClientConfig,
    ClientEvent,
    LedgerClient,
    LedgerWriter,
    NotEnoughInSyncReplicasError,
    Quorum,
)
from ledger_client.observability import EnsembleChanged, MemberCaughtUp
from metadata.ids import Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.local_cluster import LocalCluster
from tests.until import until

pytestmark = pytest.mark.timeout(600)

COUNT = 300
REPLICAS = 3
CHANGES_AT_ONCE = 8
COPIES_AT_ONCE = 4
WAIT_S = 240.0
CONFIG = ClientConfig(
    metadata_changes_at_once=CHANGES_AT_ONCE,
    copies_at_once=COPIES_AT_ONCE,
    spare_after_s=1000.0,
    metadata_reads_per_s=1000,
    close_timeout_s=60.0,
    metadata_timeout_s=60.0,
    suspicions_per_minute_max=0,
    append_deadline_s=240.0,
)
LAG_S = 120.0
"""Lag after which a member leaves: no member leaves because the machine is busy."""


class Changes:
    """Changes of metadata of one client: how many are under way."""

    def __init__(self) -> None:
        self.under_way = 0
        self.most = 0
        self.count = 0

    async def install(self, client: LedgerClient) -> None:
        """Count the changes from now on."""
        ledgers = (await client._session.services()).ledgers
        store = ledgers.compare_and_set

        async def counted(metadata: LedgerMetadata, expected: Version) -> Version:
            self.count += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                return await store(metadata, expected)
            finally:
                self.under_way -= 1

        ledgers.compare_and_set = counted  # type: ignore[method-assign]


async def each(
    writers: list[LedgerWriter], work: Callable[[LedgerWriter], Awaitable[object]]
) -> None:
    for start in range(0, len(writers), 50):
        await asyncio.gather(*map(work, writers[start : start + 50]))


async def opened(client: LedgerClient, quorum: Quorum) -> list[LedgerWriter]:
    writers: list[LedgerWriter] = []
    while len(writers) < COUNT:
        writers += await asyncio.gather(*(client.create_ledger(quorum) for _ in range(50)))
    await each(writers, lambda writer: writer.append(b"on all"))
    return writers


def is_member(bookie_id: str, writer: LedgerWriter) -> bool:
    return bookie_id in writer.info.fragments[-1].ensemble


async def test_a_member_of_many_ledgers_leaves_and_catches_up() -> None:
    events: list[ClientEvent] = []
    async with (
        LocalCluster(bookies=REPLICAS) as cluster,
        LedgerClient(cluster.metadata_uri, config=CONFIG, on_event=events.append) as client,
    ):
        bookie = cluster.bookies[0]
        writers = await opened(client, Quorum.in_sync(REPLICAS, 2, replica_lag_time_max=LAG_S))
        changes = Changes()
        await changes.install(client)

        await bookie.stop()
        # A member that waits for its turn to leave is not shown as in sync any more.
        await until(lambda: not any(is_member(bookie.id, writer) for writer in writers), WAIT_S)
        assert changes.count == COUNT
        assert 1 < changes.most <= CHANGES_AT_ONCE
        left = Counter(event.ledger_id for event in events if isinstance(event, EnsembleChanged))
        assert left == {writer.id: 1 for writer in writers}
        await each(writers, lambda writer: writer.append(b"on two"))

        await bookie.start()
        await until(lambda: all(len(writer.in_sync) == REPLICAS for writer in writers), WAIT_S)
        assert 1 < changes.most <= CHANGES_AT_ONCE + COPIES_AT_ONCE
        caught_up = Counter(
            event.ledger_id for event in events if isinstance(event, MemberCaughtUp)
        )
        assert caught_up == {writer.id: 1 for writer in writers}
        await each(writers, lambda writer: writer.append(b"on all again"))
        await each(writers, lambda writer: writer.aclose())
        info = await client.ledger_info(writers[-1].id)
        assert info.last_entry_id == 2
        assert all(bookie.id in fragment.ensemble for fragment in info.fragments)


async def test_many_ledgers_refuse_appends_until_a_member_is_back() -> None:
    async with (
        LocalCluster(bookies=2) as cluster,
        LedgerClient(cluster.metadata_uri, config=CONFIG) as client,
    ):
        bookie = cluster.bookies[0]
        writers = await opened(client, Quorum.in_sync(2, 2, replica_lag_time_max=LAG_S))
        changes = Changes()
        await changes.install(client)
        await bookie.stop()
        await until(lambda: not any(writer.is_usable for writer in writers), WAIT_S)
        with pytest.raises(NotEnoughInSyncReplicasError):
            await writers[0].append(b"refused")
        await bookie.start()
        await until(lambda: all(writer.is_usable for writer in writers), WAIT_S)
        assert changes.count == 0
        await each(writers, lambda writer: writer.append(b"on both again"))
        await each(writers, lambda writer: writer.aclose())
