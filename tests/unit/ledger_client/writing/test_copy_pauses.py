"""Pauses after failed copies and removals are short again after a success (rule 11.2)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from bookie.wire.messages import Status
from ledger_client import ClientConfig
from ledger_client.observability import MemberCopyFailed
from ledger_client.protocol import append_events as e
from metadata.ids import BookieId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.support.ledger_client.ledger_world import LEDGER
from tests.support.ledger_client.writer_world import World, run
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of

A, B = BookieId("a"), BookieId("b")
TOKEN = UpdateToken(b"changed by tests")
CONFIG = ClientConfig(spare_after_s=1000.0, read_timeout_s=0.5, metadata_timeout_s=1.0)
LONG_S, SHORT_S = 60.0, 4.0
"""Time for many failures, which make the pause long, and the longest time to the next attempt."""


async def change(world: World, update: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
    """Have another client change the metadata, and the writer see it."""
    stored, version = await world.others.get(LEDGER, fresh=True)
    changed = update(stored)
    version = await world.others.compare_and_set(changed, version)
    world.shell.dispatch(e.MetadataSeen(changed, version))


def refuse_reads(world: World, status: Status | None) -> None:
    for name in "abc":
        world.bookies[name].refuses_reads = status


async def copy_fails(world: World) -> None:
    count = len(world.reported(MemberCopyFailed))
    await world.check_until(lambda: len(world.reported(MemberCopyFailed)) > count, LONG_S)


def test_the_pause_after_a_failed_copy_is_short_again_after_a_success() -> None:
    async def scenario(world: World) -> None:
        world.append(5)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_for(2.0)
        world.bookies.fail("c", None)
        refuse_reads(world, Status.UNKNOWN)
        await world.check_for(LONG_S)
        refuse_reads(world, None)
        await world.check_until(lambda: world.in_sync == "abc", LONG_S)

        def without_c(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata.with_fragment(1, replace(metadata.fragments[1], ensemble=(A, B)), TOKEN)

        refuse_reads(world, Status.UNKNOWN)
        await change(world, without_c)
        assert world.in_sync == "ab"
        await copy_fails(world)
        refuse_reads(world, None)
        await world.check_until(lambda: world.in_sync == "abc", SHORT_S)

    run(scenario, config=CONFIG)


def test_the_pause_after_a_failed_removal_is_short_again_after_a_success() -> None:
    async def scenario(world: World) -> None:
        def marked(metadata: LedgerMetadata) -> LedgerMetadata:
            fragment = replace(metadata.fragments[0], incoming=(BookieId("e"),))
            return metadata.with_fragment(0, fragment, TOKEN)

        def has_mark() -> bool:
            return bool(world.metadata.fragments[0].incoming)

        world.append(5)
        await asyncio.sleep(1.0)
        await world.lose("c")
        world.server.faults = faults = ScriptedFaults(reads_of(world.store))
        faults.is_away = True
        await change(world, marked)
        await world.check_for(LONG_S)
        faults.is_away = False
        await world.check_until(lambda: not has_mark(), LONG_S)

        faults.is_away = True
        await change(world, marked)
        faults.calls.clear()
        await world.check_until(lambda: bool(faults.calls), SHORT_S)
        await world.check_for(1.0)
        faults.is_away = False
        await world.check_until(lambda: not has_mark(), SHORT_S)

    run(scenario, config=CONFIG)
