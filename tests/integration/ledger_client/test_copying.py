"""Tests of copies of fragments on real bookies, with a real ZooKeeper (protocol rule 9.1)."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from typing_extensions import override

from ledger_client import LedgerClient, Quorum
from ledger_client.copying import CopyLimits, CopyProgress, CopyServices, FragmentCopier
from ledger_client.digest import LedgerKeys
from ledger_client.errors import NotEnoughBookiesError
from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = 2000
SMALL = CopyLimits(request_bytes_max=64 * 1024, requests_at_once=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start five bookies; each test starts those again that it kills."""
    async with LocalCluster(bookies=5) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: LocalCluster) -> AsyncIterator[LedgerClient]:
    async with LedgerClient(cluster.metadata_uri) as client:
        yield client


def payload(number: int) -> bytes:
    return b"%08d" % number + b"." * (number % 1000)


class HeldLedgers(LedgerStore):
    """Ledger store that stores a new member only once a test allows it."""

    reached: asyncio.Event
    may_go_on: asyncio.Event

    @override
    async def compare_and_set(self, metadata: LedgerMetadata, expected: Version) -> Version:
        if not any(fragment.incoming for fragment in metadata.fragments):
            self.reached.set()
            await self.may_go_on.wait()
        return await super().compare_and_set(metadata, expected)


async def copier(
    client: LedgerClient,
    ledger_id: int,
    *,
    password: bytes = b"",
    ledgers: LedgerStore | None = None,
    on_progress: Callable[[CopyProgress], None] = lambda _: None,
) -> FragmentCopier:
    services = await client._session.services()
    metadata, _ = await services.ledgers.get(LedgerId(ledger_id))
    return FragmentCopier(
        services=CopyServices(
            services.pool, ledgers or services.ledgers, services.config, services.rng
        ),
        keys=LedgerKeys.of(metadata, password),
        limits=SMALL,
        throttle=services.for_writers.copy_throttle,
        on_progress=on_progress,
    )


async def stored(client: LedgerClient, ledger_id: int) -> LedgerMetadata:
    services = await client._session.services()
    metadata, _ = await services.ledgers.get(LedgerId(ledger_id), fresh=True)
    return metadata


async def stored_once(
    client: LedgerClient, ledger_id: int, is_so: Callable[[LedgerMetadata], bool]
) -> LedgerMetadata:
    """Return the stored metadata once it satisfies a condition."""
    services = await client._session.services()
    changed = asyncio.Event()
    cancel = services.ledgers.watch(LedgerId(ledger_id), changed.set)
    try:
        while not is_so(now := await stored(client, ledger_id)):
            await changed.wait()
            changed.clear()
    finally:
        cancel()
    return now


def spare_of(cluster: LocalCluster, metadata: LedgerMetadata) -> LocalBookie:
    return next(b for b in cluster.bookies if b.is_running and not metadata.names(BookieId(b.id)))


async def check_all(client: LedgerClient, ledger_id: int, password: bytes = b"") -> None:
    async with client.open_ledger(ledger_id, password=password) as reader:
        found = [entry.data async for batch in reader.read(0, COUNT - 1) for entry in batch]
    assert found == [payload(number) for number in range(COUNT)]


async def write_closed(client: LedgerClient, quorum: Quorum, **options: object) -> int:
    async with client.create_ledger(quorum, **options) as writer:  # type: ignore[arg-type]
        for first in range(0, COUNT, 50):  # a batch each, and copies of many pieces
            await writer.append_many(payload(first + number) for number in range(50))
    return writer.id


@pytest.mark.parametrize("digest", ["crc32c", "hmac-sha256"])
async def test_a_fresh_bookie_holds_all_when_the_only_other_is_killed(
    cluster: LocalCluster, client: LedgerClient, digest: str
) -> None:
    ledger_id = await write_closed(
        client, Quorum.all(1), digest=digest, password=b"a secret password"
    )
    before = await stored(client, ledger_id)
    (original,) = before.fragments[0].ensemble
    target = spare_of(cluster, before)
    seen: list[CopyProgress] = []
    work = await copier(client, ledger_id, password=b"a secret password", on_progress=seen.append)
    after, _ = await work.copy_fragment(
        LedgerId(ledger_id), EntryId(0), BookieId(target.id), original
    )
    assert after == await stored(client, ledger_id)
    assert [(f.ensemble, f.incoming) for f in after.fragments] == [((target.id,), ())]
    assert (seen[-1].copied_entries, seen[-1].copied_bytes) == (COUNT, before.length)
    assert len(seen) > 10, "a piece at a time"
    killed = next(b for b in cluster.bookies if b.id == original)
    killed.kill()
    await check_all(client, ledger_id, b"a secret password")
    await killed.restart()


async def test_a_concurrent_ensemble_change_of_the_writer_is_merged(
    cluster: LocalCluster, client: LedgerClient
) -> None:
    def bookie(bookie_id: str) -> LocalBookie:
        return next(b for b in cluster.bookies if b.id == bookie_id)

    async with client.create_ledger(Quorum(ensemble=3, write=3, ack=2)) as writer:
        await writer.append_many(payload(number) for number in range(COUNT // 2))
        first = (await stored(client, writer.id)).fragments[0].ensemble
        bookie(first[0]).kill()
        await writer.append_many(payload(number) for number in range(COUNT // 2, COUNT - 1))
        before = await stored_once(client, writer.id, lambda now: len(now.fragments) > 1)
        target = BookieId(next(b for b in before.last_fragment.ensemble if b not in first))
        services = await client._session.services()
        held = HeldLedgers(services.store, services.rng, services.wall_clock_ms)
        held.reached, held.may_go_on = asyncio.Event(), asyncio.Event()
        work = await copier(client, writer.id, ledgers=held)
        copying = asyncio.create_task(
            work.copy_fragment(LedgerId(writer.id), EntryId(0), target, first[0])
        )
        await held.reached.wait()
        bookie(first[1]).kill()
        await writer.append(payload(COUNT - 1))
        changed = await stored_once(
            client, writer.id, lambda now: now.last_fragment != before.last_fragment
        )
        held.may_go_on.set()
        after, _ = await copying
        assert after.state is LedgerState.OPEN
        assert after.fragments[1:] == changed.fragments[1:], "as the writer changed it"
        assert after.fragments[0].ensemble == (target, *first[1:])
        assert after.fragments[0].incoming == ()
        bookie(first[2]).kill()
        await bookie(first[1]).restart()  # the last fragment needs two
        async with client.open_ledger(writer.id) as reader:
            found = [e.data async for batch in reader.read(0, COUNT // 2) for e in batch]
        assert found == [payload(number) for number in range(COUNT // 2 + 1)]
    await check_all(client, writer.id)
    for each in (first[0], first[2]):
        await bookie(each).restart()


async def test_a_target_killed_during_the_copy_leaves_the_ledger_unchanged(
    cluster: LocalCluster, client: LedgerClient
) -> None:
    ledger_id = await write_closed(client, Quorum.all(2))
    before = await stored(client, ledger_id)
    target = spare_of(cluster, before)
    marks: list[CopyProgress] = []

    def kill(progress: CopyProgress) -> None:
        marks.append(progress)
        if len(marks) == 1:  # a write that was under way may still be applied
            target.kill()

    work = await copier(client, ledger_id, on_progress=kill)
    replaced = before.fragments[0].ensemble[1]
    with pytest.raises(NotEnoughBookiesError) as raised:
        await work.copy_fragment(LedgerId(ledger_id), EntryId(0), BookieId(target.id), replaced)
    assert list(raised.value.excluded) == [target.id]
    assert 0 < marks[-1].copied_entries < COUNT
    assert (await stored(client, ledger_id)).fragments == before.fragments
    await check_all(client, ledger_id)
    await target.restart()


async def test_a_cancelled_copy_removes_its_mark(
    cluster: LocalCluster, client: LedgerClient
) -> None:
    ledger_id = await write_closed(client, Quorum.all(2))
    before = await stored(client, ledger_id)
    target = BookieId(spare_of(cluster, before).id)
    replaced = before.fragments[0].ensemble[0]
    begun = asyncio.Event()
    work = await copier(client, ledger_id, on_progress=lambda _: begun.set())
    copying = asyncio.create_task(
        work.copy_fragment(LedgerId(ledger_id), EntryId(0), target, replaced)
    )
    await begun.wait()
    assert (await stored(client, ledger_id)).fragments[0].incoming in ((target,), ())
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert (await stored(client, ledger_id)).fragments == before.fragments
    again = await copier(client, ledger_id)
    after, _ = await again.copy_fragment(LedgerId(ledger_id), EntryId(0), target, replaced)
    assert after.fragments[0].ensemble == (target, before.fragments[0].ensemble[1])
    await check_all(client, ledger_id)
