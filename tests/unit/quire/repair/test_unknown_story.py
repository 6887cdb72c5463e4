"""Bookies without a cookie that ledgers name, and bookies that were formatted and never started."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ledger_client import Quorum
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.errors import CommandError
from quire.operate.bookie_changes import remove_all
from quire.repair.ledger_reads import NEVER_STARTED_AFTER_MS, LedgerReads
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import check_whole, end, start_again

if TYPE_CHECKING:
    from ledger_client.cluster_access import Cluster

PASS_S = 700.0
"""Somewhat more than the time between two passes of the auditor."""


async def format_only(world: World, bookie_id: str, *, age_ms: int) -> BookieId:
    """Create the cookie of a bookie that was formatted some time ago."""
    created_ms = world.repairers[0].wall_clock_ms() - age_ms
    record = CookieRecord(BookieId(bookie_id), Random(bookie_id).randbytes(16), created_ms, 3, b"h")
    await CookieStore(world.store).create(record)
    return record.bookie_id


def test_a_named_bookie_without_a_cookie_counts_as_lost() -> None:
    """An operator deleted the node, or restored old metadata: its ledgers must not wait for it."""

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        end(world, gone_id)
        cookies = CookieStore(world.store)
        _, version = await cookies.get(gone_id)
        await cookies.delete(gone_id, version)
        await world.wait_for_state(gone_id, Lifecycle.LOST)
        assert await world.wait(lambda: not world.is_named(gone_id))
        check_whole(world, ledger_id)

    play(story)


def test_a_bookie_that_never_started_is_removed_a_day_after_its_format() -> None:
    async def story(world: World) -> None:
        old = await format_only(world, "bookie-ghost", age_ms=NEVER_STARTED_AFTER_MS)
        young = await format_only(world, "bookie-young", age_ms=1000)
        started = await format_only(world, "bookie-old", age_ms=NEVER_STARTED_AFTER_MS)
        cookies = CookieStore(world.store)
        await cookies.compare_and_set(*await cookies.get(started))  # a start counts in this way
        await world.wait_for_state(old, Lifecycle.REMOVED)
        await asyncio.sleep(PASS_S)
        states = [await world.state_of(bookie) for bookie in (young, started)]
        assert states == [Lifecycle.LOST, Lifecycle.LOST]

    play(story)


def test_a_bookie_that_starts_during_the_pass_of_its_removal_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes no entries meanwhile, and is lost again, until its registration is seen."""
    seen: list[Lifecycle] = []

    async def story(world: World) -> None:
        cookies, read_all = CookieStore(world.store), LedgerReads.read_all

        async def read(self: LedgerReads) -> None:
            await read_all(self)
            state = await world.state_of(ghost)
            if state is Lifecycle.DRAINED and not seen:
                seen.append(state)
                await cookies.compare_and_set(*await cookies.get(ghost))  # its first start

        monkeypatch.setattr(LedgerReads, "read_all", read)
        ghost = await format_only(world, "bookie-ghost", age_ms=NEVER_STARTED_AFTER_MS)
        assert await world.wait(lambda: bool(seen), 2 * PASS_S)
        await world.wait_for_state(ghost, Lifecycle.LOST)
        await asyncio.sleep(PASS_S)
        assert await world.state_of(ghost) is Lifecycle.LOST

    play(story)


def test_a_bookie_is_lost_again_if_the_pass_of_its_removal_cannot_read_a_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drained, it would stay so, and refuse entries after its first start."""
    seen: list[Lifecycle] = []

    async def story(world: World) -> None:
        read_all = LedgerReads.read_all

        async def read(self: LedgerReads) -> None:
            await read_all(self)
            state = await world.state_of(ghost)
            if seen or state is Lifecycle.DRAINED:
                seen.append(state)
                self.unreadable_count += 1

        monkeypatch.setattr(LedgerReads, "read_all", read)
        ghost = await format_only(world, "bookie-ghost", age_ms=NEVER_STARTED_AFTER_MS)
        assert await world.wait(lambda: bool(seen), 2 * PASS_S)
        await world.wait_for_state(ghost, Lifecycle.LOST)

    play(story)


def test_the_host_that_is_back_while_its_lost_bookies_are_removed_keeps_its_new_ledgers() -> None:
    """`quire bookie remove` of all bookies of a host: what they acknowledged meanwhile was lost."""

    async def story(world: World) -> None:
        await world.write(1, Quorum.all(2))
        known = [BookieId(b.bookie_id) for b in world.cluster.bookies if b.bookie_id]
        lost = [bookie for bookie in known if not world.is_named(bookie)]
        end(world, *lost)
        for bookie in lost:
            await world.wait_for_state(bookie, Lifecycle.LOST)
        cluster = SimpleNamespace(store=world.store, rng=world.rng)
        records = {
            bookie: await LifecycleStore(world.store, world.rng).get(bookie) for bookie in lost
        }
        written: list[int] = []

        async def ledgers() -> AsyncIterator[tuple[LedgerId, LedgerMetadata]]:
            for ledger in world.ledgers():
                yield ledger.ledger_id, ledger
            start_again(world, *lost)
            for _ in range(10):
                written.extend(await world.write(1, Quorum.all(2)))
                await asyncio.sleep(1)

        with pytest.raises(CommandError, match="it was lost and is back"):
            await remove_all(cast("Cluster", cluster), records, "test", ledgers())
        assert not any(map(world.is_named, lost)), "they take no entries during the pass"
        for bookie in lost:
            await world.wait_for_state(bookie, Lifecycle.ACTIVE)
        for ledger_id in written:
            await world.read([ledger_id])

    play(story, bookies=4, repairers=1)
