"""Copies to members that catch up, and marks that failed copies left, in virtual time (rule
11.2).
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from bookie.wire.messages import Status
from ledger_client import ClientConfig
from ledger_client.observability import MemberCaughtUp, MemberCopied, MemberCopyFailed
from ledger_client.protocol import append_events as e
from ledger_client.writing.writer_watch import StoredWatch
from metadata.ids import BookieId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.ledger_world import LEDGER
from tests.support.ledger_client.writer_world import World, run
from tests.support.metadata.scripted_faults import ScriptedFaults, is_read, is_write

A, B, C, D = map(BookieId, "abcd")
TOKEN = UpdateToken(b"changed by tests")
SOON = ClientConfig(spare_after_s=5.0, read_timeout_s=0.5)


async def change(world: World, update: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
    """Have another client change the metadata, and the writer see it."""
    stored, version = await world.others.get(LEDGER, fresh=True)
    changed = update(stored)
    version = await world.others.compare_and_set(changed, version)
    world.shell.dispatch(e.MetadataSeen(changed, version))


async def mark(world: World, name: str, *, first: int = 0) -> None:
    """Leave the mark of a copy to a bookie that is not a member."""

    def marked(metadata: LedgerMetadata) -> LedgerMetadata:
        fragment = replace(metadata.fragments[first], incoming=(BookieId(name),))
        return metadata.with_fragment(first, fragment, TOKEN)

    await change(world, marked)


async def lose_and_return(world: World, appends: int = 10) -> None:
    """Make c leave and come back, so that it lacks entries of the first fragment."""
    for _ in range(appends):
        world.append(5)
    await asyncio.sleep(1.0)
    world.bookies["c"].entries.clear()
    await world.lose("c")
    await world.check_for(2.0)
    world.bookies.fail("c", None)
    await world.check_until(lambda: world.ensemble == "abc", 5.0)


async def lose_for_good(world: World, appends: int = 10) -> None:
    """Make c leave, and wait until d joins, which lacks both older fragments."""
    for _ in range(appends):
        world.append(5)
    await asyncio.sleep(1.0)
    await world.lose("c")
    await world.check_until(lambda: world.ensemble == "abd", 20.0)


def marks(world: World) -> list[str]:
    return [target for fragment in world.metadata.fragments for target in fragment.incoming]


# -- copies ----------------------------------------------------------------------------------------


def test_a_member_catches_up_fragment_by_fragment_and_is_reported() -> None:
    async def scenario(world: World) -> None:
        await lose_for_good(world)
        assert world.in_sync == "ab"
        began_s = simulation_loop().time()
        await world.check_until(lambda: world.in_sync == "abd", 5.0)
        assert simulation_loop().time() - began_s < 1.6, "fragments follow each other"
        copied = [event for event in world.events if isinstance(event, MemberCopied)]
        ends = {member_copied.fragment_first_entry_id: member_copied for member_copied in copied}
        assert list(ends) == [50, 0], "the newest first"
        assert [(end.copied_entries, end.total_entries) for end in ends.values()] == [
            (1, 1),
            (50, 50),
        ]
        assert {(member_copied.ledger_id, member_copied.bookie_id) for member_copied in copied} == {
            (LEDGER, D)
        }
        caught_up = [event for event in world.events if isinstance(event, MemberCaughtUp)]
        assert caught_up == [MemberCaughtUp(LEDGER, D)]
        assert world.events[-1] == caught_up[0]
        assert world.reported(MemberCopyFailed) == []
        assert world.held("d") == list(range(51))
        assert {fragment.ensemble for fragment in world.metadata.fragments} == {(A, B, D)}

    run(scenario, spares="d", config=SOON)


def test_a_member_that_the_watch_saw_catch_up_is_reported_too() -> None:
    """The answer to the last change of its copy comes later than the watch's read."""

    async def scenario(world: World) -> None:
        await lose_and_return(world)
        watch = StoredWatch(world.shell, world.services)
        world.server.faults = ScriptedFaults(is_write, answer_s=3.0)
        await world.check_for(15.0)
        assert world.in_sync == "abc"
        caught_up = [event for event in world.events if isinstance(event, MemberCaughtUp)]
        assert caught_up == [MemberCaughtUp(LEDGER, C)]
        watch.close()

    run(scenario)


def test_a_copy_that_fails_is_repeated_after_growing_pauses() -> None:
    async def scenario(world: World) -> None:
        for name in "ab":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        await lose_for_good(world)
        await world.check_for(400.0)
        assert world.in_sync == "ab"
        failed = [event for event in world.events if isinstance(event, MemberCopyFailed)]
        assert {(copy_failed.ledger_id, copy_failed.bookie_id) for copy_failed in failed} == {
            (LEDGER, D)
        }
        assert {copy_failed.fragment_first_entry_id for copy_failed in failed} == {0, 50}
        assert 2 * 7 <= len(failed) <= 2 * 14
        assert "no replica returned entry" in failed[0].reason
        assert world.reported(MemberCaughtUp) == []
        for name in "ab":
            world.bookies[name].refuses_reads = None
        await world.check_until(lambda: world.in_sync == "abd", 70.0)
        assert marks(world) == []

    run(scenario, spares="d", config=SOON)


def test_one_copy_runs_at_a_time() -> None:
    """A check while it runs begins no other."""

    async def scenario(world: World) -> None:
        writes = ScriptedFaults(is_write)
        await lose_for_good(world, 1)
        world.server.faults = writes
        for name in "ab":
            world.bookies[name].delay_s = 4.0
        await world.check_for(20.0)
        assert world.in_sync == "abd"
        assert 3 <= len(writes.times) <= 4, "a mark and a member for each of two fragments"

    run(scenario, spares="d", config=SOON)


def test_the_end_of_the_writer_ends_its_copy() -> None:
    async def scenario(world: World) -> None:
        await lose_and_return(world)
        for name in "ab":
            world.bookies[name].delay_s = 100.0
        await world.check_for(3.0)
        tasks = asyncio.all_tasks()
        world.bookies["a"].delay_s = world.bookies["b"].delay_s = 0.001
        await world.members.aclose()
        assert asyncio.all_tasks() < tasks
        await world.check_for(10.0)
        assert world.in_sync == "ab"
        stored, _ = await world.others.get(LEDGER, fresh=True)
        assert not any(fragment.incoming for fragment in stored.fragments)

    run(scenario)


def test_a_copy_whose_turn_comes_after_the_end_does_not_begin() -> None:
    async def scenario(world: World) -> None:
        writes = ScriptedFaults(is_write)
        await lose_and_return(world)
        blocking = asyncio.create_task(asyncio.sleep(10.0))
        for _ in range(4):
            world.services.copy_turns.count(blocking)
        world.server.faults = writes
        await world.check_for(3.0)
        await world.members.aclose()
        await asyncio.sleep(10.0)
        assert (writes.times, world.in_sync) == ([], "ab")

    run(scenario)


def test_nothing_is_copied_after_the_end_of_the_ledger() -> None:
    async def scenario(world: World) -> None:
        await lose_and_return(world)
        world.shell.dispatch(e.CloseRequested(TOKEN))
        await asyncio.sleep(1.0)
        assert world.shell.protocol.has_ended
        await world.check_for(5.0)
        assert world.reported(MemberCopied) == []

    run(scenario)


def test_a_copy_that_failed_is_followed_by_another_look() -> None:
    async def scenario(world: World) -> None:
        for name in "ab":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        await lose_for_good(world)
        await world.check_until(lambda: len(world.reported(MemberCopyFailed)) == 1, 10.0)
        failed_s = simulation_loop().time()
        await world.check_until(lambda: len(world.reported(MemberCopyFailed)) == 2, 10.0)
        assert simulation_loop().time() - failed_s > 0.8

    run(scenario, spares="d", config=SOON)


def test_a_member_that_cannot_leave_gets_no_copy() -> None:
    async def scenario(world: World) -> None:
        world.append(5)
        await asyncio.sleep(1.0)
        for name in "ac":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        await world.lose("b")
        await world.check_until(lambda: world.ensemble == "adc", 10.0)
        failed = e.BookieFailed(D, e.FailureKind.GONE, "its registration is gone")
        world.bookies.fail("d")
        world.shell.dispatch(failed)
        await world.check_for(1.0)
        assert list(world.shell.protocol.parked) == [D]
        count = len(world.reported(MemberCopyFailed))
        await world.check_for(50.0)
        assert len(world.reported(MemberCopyFailed)) == count

    run(scenario, minimum=3, spares="d", config=SOON)


# -- stray marks -----------------------------------------------------------------------------------


def test_the_mark_of_a_failed_copy_is_removed() -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await mark(world, "e")
        assert marks(world) == ["e"]
        await world.check_until(lambda: marks(world) == [], 3.0)
        stored, _ = await world.others.get(LEDGER, fresh=True)
        assert stored == world.metadata

    run(scenario)


def test_a_whole_ledger_with_a_stray_mark_is_looked_at_until_it_is_gone() -> None:
    async def scenario(world: World) -> None:
        await lose_and_return(world)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)
        assert world.check() is None
        await mark(world, "e")
        assert world.check() is not None
        await world.check_for(3.0)
        assert (marks(world), world.dues[-1][1]) == ([], None)

    run(scenario)


def test_several_marks_are_removed_one_after_the_other() -> None:
    async def scenario(world: World) -> None:
        await lose_and_return(world)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)
        await mark(world, "d", first=0)
        await mark(world, "e", first=1)
        assert marks(world) == ["d", "e"]
        began_s = await world.check_until(lambda: len(marks(world)) < 2, 5.0)
        ended_s = await world.check_until(lambda: not marks(world), 5.0)
        assert ended_s - began_s < 0.8

    run(scenario)


def test_a_mark_that_is_gone_when_its_turn_comes_needs_no_removal() -> None:
    async def scenario(world: World) -> None:
        await lose_and_return(world)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)
        blocking = asyncio.create_task(asyncio.sleep(10.0))
        for _ in range(4):
            world.services.copy_turns.count(blocking)
        await mark(world, "e")
        await world.check_for(3.0)

        def unmarked(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata.with_fragment(0, replace(metadata.fragments[0], incoming=()), TOKEN)

        await change(world, unmarked)
        await asyncio.sleep(10.0)
        assert marks(world) == []
        assert world.check() is None

    run(scenario)


def test_a_removal_that_fails_is_repeated_after_growing_pauses() -> None:
    async def scenario(world: World) -> None:
        await lose_and_return(world)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)
        await mark(world, "d", first=0)
        await mark(world, "e", first=1)
        await world.others.delete(LEDGER)
        reads = ScriptedFaults(is_read)
        world.server.faults = reads
        await world.check_for(200.0)
        assert marks(world) == ["d", "e"]
        gaps = [after - before for before, after in pairwise(reads.times)]
        assert 12 <= len(reads.times) <= 24
        assert gaps[0] > 0.8, "the next look comes first"
        assert max(gaps) > 25.0

    run(scenario)
