"""Copies of fragments whose metadata is changed concurrently (protocol rules 1.3, 1.4, 9.1)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from ledger_client.config import ClientConfig
from ledger_client.errors import (
    LedgerNotFoundError,
    MetadataConflictError,
    MetadataUnavailableError,
)
from ledger_client.protocol.copy import IncomingMark, stray_marks
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.support.ledger_client.copying_world import TOKEN, World, run, write
from tests.support.ledger_client.ledger_world import LEDGER, length
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.support.sample_ledgers import fragments

Change = Callable[[LedgerMetadata], LedgerMetadata]
PIECES = list(range(0, 40, 5))


def grow(now: LedgerMetadata) -> LedgerMetadata:
    first = EntryId(now.last_fragment.first_entry_id + 10)
    return now.with_ensemble_change(first, fragments((0, "abe"))[0].ensemble, TOKEN)


def begin_recovery(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_recovery_begun(TOKEN)


def end_recovery(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_recovered((), EntryId(59), length(60), TOKEN)


def close(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_closed(EntryId(59), length(60), TOKEN)


def mark_off(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_fragment(0, replace(now.fragments[0], incoming=()), TOKEN)


def mark_on(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_fragment(0, replace(now.fragments[0], incoming=(BookieId("d"),)), TOKEN)


def take_in(now: LedgerMetadata) -> LedgerMetadata:
    """Make the target a member that catches up."""
    return now.with_ensemble_change(EntryId(50), fragments((0, "abd"))[0].ensemble, TOKEN)


def swap_another(now: LedgerMetadata) -> LedgerMetadata:
    members = fragments((0, "abf"))[0].ensemble
    return now.with_fragment(0, replace(now.fragments[0], ensemble=members), TOKEN)


def name_target(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_fragment(0, fragments((0, "dbc"))[0], TOKEN)


def copy_elsewhere(now: LedgerMetadata) -> LedgerMetadata:
    return now.with_fragment(1, fragments((40, "abf"))[0], TOKEN)


def meddle_once(world: World, *changes: Change) -> None:
    async def meddle() -> None:
        world.ledgers.before_naming = None
        await world.change(*changes)

    world.ledgers.before_naming = meddle


@pytest.mark.parametrize(
    ("changes", "closed_at"),
    [
        ((grow,), None),
        ((grow, grow, grow), None),
        ((begin_recovery,), None),
        ((grow, begin_recovery), None),
        ((close,), None),
        ((copy_elsewhere,), 59),
    ],
)
def test_changes_elsewhere_are_merged_and_nothing_is_copied_twice(
    changes: tuple[Change, ...], closed_at: int | None
) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 60)
        meddle_once(world, *changes)
        expected = world.metadata
        for change in changes:
            expected = change(expected)
        after, _ = await world.copy()
        assert (after.state, after.fragments[1:]) == (expected.state, expected.fragments[1:])
        assert after.fragments[0] == fragments((0, "dbc"))[0]
        assert world.sent() == PIECES

    run(scenario, closed_at=closed_at)


@pytest.mark.parametrize(
    ("changes", "closed_at"),
    [
        ((mark_off, mark_on), 59),
        ((begin_recovery, end_recovery), None),
        ((mark_off, close, mark_on), None),
    ],
)
def test_everything_is_copied_again_if_the_target_may_have_dropped_it(
    changes: tuple[Change, ...], closed_at: int | None
) -> None:
    """A bookie drops entries of a closed ledger that does not name it (rule 10.1)."""

    async def scenario(world: World) -> None:
        write(world, 0, 60)

        async def meddle() -> None:
            world.ledgers.before_naming = None
            await world.change(*changes)
            world.bookies["d"].entries.clear()

        world.ledgers.before_naming = meddle
        after, _ = await world.copy()
        assert after.state is LedgerState.CLOSED
        assert after.fragments == fragments((0, "dbc"), (40, "abc"))
        assert world.is_whole(0, 39)
        assert world.sent() == 2 * PIECES

    run(scenario, closed_at=closed_at)


def test_a_mark_that_is_removed_again_and_again_ends_the_copy() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 60)

        async def meddle() -> None:
            if (await world.stored()).fragments[0].incoming:
                await world.change(mark_off, mark_on)

        world.ledgers.before_naming = meddle
        with pytest.raises(MetadataConflictError, match="during each of 3"):
            await world.copy()

    run(scenario, closed_at=59)


@pytest.mark.parametrize(
    ("change", "why", "left"),
    [
        (mark_off, "ended the copy to d", "abc"),
        (swap_another, "changed by another process", "abf"),
    ],
)
def test_a_copy_that_is_no_longer_needed_does_not_become_a_member(
    change: Change, why: str, left: str
) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 60)
        meddle_once(world, change)
        with pytest.raises(MetadataConflictError, match=why):
            await world.copy()
        assert (await world.stored()).fragments == fragments((0, left), (40, "abc"))

    run(scenario)


def test_the_result_of_another_copier_with_the_same_target_counts() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 60)
        meddle_once(world, name_target)
        after, version = await world.copy()
        assert (after, version) == await world.others.get(LEDGER)
        assert after.fragments[0] == fragments((0, "dbc"))[0]

    run(scenario)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_deleted_ledger_is_not_written(is_made_again: bool) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 60)
        other = replace(
            world.metadata,
            fragments=fragments((0, "abc"), (40, "abc")),
            creation_token=UpdateToken(b"o" * 16),
        )

        async def meddle() -> None:
            world.ledgers.before_naming = None
            await world.others.delete(LEDGER)
            if is_made_again:
                await world.others.create(other)
                await world.change(mark_on)
                await world.change(mark_on)

        world.ledgers.before_naming = meddle
        with pytest.raises(LedgerNotFoundError):
            await world.copy()
        if is_made_again:
            assert (await world.stored()).fragments == mark_on(other).fragments

    run(scenario)


def test_lost_answers_of_the_metadata_service_are_decided() -> None:
    faults = ScriptedFaults()

    async def scenario(world: World) -> None:
        write(world, 0, 60)
        faults.acts = ["lost", ""] * 10
        after, _ = await world.copy()
        assert after.fragments[0] == fragments((0, "dbc"))[0]
        assert 0 < len(faults.acts) < 20

    run(scenario, faults=faults)


@pytest.mark.parametrize("away_s", [5.0, 100.0])
def test_the_wait_for_the_metadata_service_is_limited(away_s: float) -> None:
    faults = ScriptedFaults()

    async def scenario(world: World) -> None:
        write(world, 0, 60)
        world.config = ClientConfig(metadata_timeout_s=10.0, close_timeout_s=3.0)

        async def meddle() -> None:
            world.ledgers.before_naming = None
            faults.is_away = True
            loop = asyncio.get_running_loop()
            loop.call_later(away_s, setattr, faults, "is_away", False)

        world.ledgers.before_naming = meddle
        if away_s < world.config.metadata_timeout_s:
            assert (await world.copy())[0].fragments[0] == fragments((0, "dbc"))[0]
            return
        with pytest.raises(MetadataUnavailableError) as raised:
            await world.copy()
        assert raised.value.outcome == "unknown"
        await asyncio.sleep(away_s)
        after, _ = await world.copy()  # continues under the mark that is left
        assert after.fragments[0] == fragments((0, "dbc"))[0]
        assert world.sent() == 2 * PIECES, "and copies all again"

    run(scenario, faults=faults)


def test_a_copy_begins_once_the_metadata_service_is_back() -> None:
    faults = ScriptedFaults()

    async def scenario(world: World) -> None:
        write(world, 0, 60)
        faults.is_away = True
        with pytest.raises(MetadataUnavailableError):
            await world.copy()
        asyncio.get_running_loop().call_later(5.0, setattr, faults, "is_away", False)
        assert (await world.copy())[0].fragments[0] == fragments((0, "dbc"))[0]

    run(scenario, faults=faults)


@pytest.mark.parametrize(
    ("changes", "is_removed"),
    [((mark_on,), True), ((mark_on, take_in), False), ((mark_on, close), False), ((), False)],
)
def test_a_mark_that_no_copy_will_use_is_removed(
    changes: tuple[Change, ...], *, is_removed: bool
) -> None:
    """Its target is not a member of the open ledger."""

    async def scenario(world: World) -> None:
        await world.change(*changes)
        mark = IncomingMark(world.metadata.creation_token, EntryId(0), BookieId("d"))
        before = await world.stored()
        assert stray_marks(before) == ([mark] if is_removed else [])
        after, _ = await world.copier().remove_stray(mark)
        assert after == await world.stored()
        assert after.fragments == (mark_off(before).fragments if is_removed else before.fragments)

    run(scenario)


def test_a_stray_mark_stays_while_the_metadata_service_is_away() -> None:
    faults = ScriptedFaults()

    async def scenario(world: World) -> None:
        await world.change(mark_on)
        (mark,) = stray_marks(await world.stored())
        faults.is_away = True
        with pytest.raises(MetadataUnavailableError):
            await world.copier().remove_stray(mark)
        faults.is_away = False
        await world.copier().remove_stray(mark)
        assert stray_marks(await world.stored()) == []

    run(scenario, faults=faults)
