"""Ledgers with several needs in a simulated cluster: one that cannot be met keeps no other back."""

import pytest

from ledger_client import Quorum
from ledger_client.errors import EntryNotFoundError, QuorumTimeoutError
from ledger_client.in_sync.copying import FragmentCopier, StoredMetadata
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.jobs import JobState
from metadata.repair.lifecycle import Lifecycle
from repair.needs import RepairClass
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import check_whole, end, lacks, start_again

TWO = Quorum(ensemble=2, write=2, ack=2)
STRIPED = Quorum(ensemble=5, write=2, ack=2, stripe_entries=1)


async def write_two_fragments(world: World) -> tuple[int, str, str]:
    """Write a closed ledger of which one member of the first fragment was replaced; return its id,
    that member, and the other one.
    """
    assert world.client is not None
    async with world.client.create_ledger(TWO) as writer:
        await writer.append(b"first")
        left, stayed = world.ledger(writer.id).fragments[0].ensemble
        end(world, left)
        await writer.append(b"second")
    start_again(world, left)
    await world.wait(lambda: world.bookie(left).is_registered)
    assert [each.first_entry_id for each in world.ledger(writer.id).fragments] == [0, 1]
    return writer.id, left, stayed


def test_a_fragment_without_any_copy_does_not_keep_the_others_back() -> None:
    async def story(world: World) -> None:
        ledger_id, left, stayed = await write_two_fragments(world)
        end(world, left, stayed)
        await world.wait_for_state(left, Lifecycle.LOST)
        await world.wait_for_state(stayed, Lifecycle.LOST)
        assert await world.wait(lambda: stayed not in world.ledger(ledger_id).fragments[1].ensemble)
        absent = lacks(world, world.ledger(ledger_id)).values()
        assert not any(1 in entries for entries in absent), "the second fragment is whole"
        await world.wait_for_job(ledger_id, JobState.LOST)

    play(story, bookies=5)


def test_a_stripe_without_any_copy_keeps_no_other_position_back() -> None:
    """Rules 9.3 and 9.7: two neighbours of five are lost, and two others drain."""

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1, STRIPED)
        first, second, *drained, last = world.ledger(ledger_id).fragments[0].ensemble
        end(world, first, second)
        await world.wait_for_state(first, Lifecycle.LOST)
        await world.wait_for_state(second, Lifecycle.LOST)
        for each in drained:
            await world.change(each, Lifecycle.DRAINING)
        for each in drained:
            await world.wait_for_state(each, Lifecycle.DRAINED)
        ensemble = world.ledger(ledger_id).fragments[0].ensemble
        assert ensemble[:2] == (first, second)
        assert ensemble[4] == last
        await world.wait_for_job(ledger_id, JobState.LOST)
        start_again(world, first, second)
        await world.wait_for_state(first, Lifecycle.ACTIVE)
        await world.wait_for_state(second, Lifecycle.ACTIVE)
        check_whole(world, ledger_id)
        await world.read([ledger_id])

    play(story, bookies=8)


@pytest.mark.parametrize("error", [EntryNotFoundError, QuorumTimeoutError])
def test_a_fragment_that_cannot_be_copied_does_not_keep_the_others_back(
    monkeypatch: pytest.MonkeyPatch, error: type[EntryNotFoundError | QuorumTimeoutError]
) -> None:
    copy_fragment = FragmentCopier.copy_fragment

    async def failing(
        self: FragmentCopier,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        target: BookieId,
        replaces: BookieId | None = None,
    ) -> StoredMetadata:
        if not first_entry_id:
            raise error("no source returns it", ledger_id=ledger_id)
        return await copy_fragment(self, ledger_id, first_entry_id, target, replaces)

    async def story(world: World) -> None:
        ledger_id, _, stayed = await write_two_fragments(world)
        monkeypatch.setattr(FragmentCopier, "copy_fragment", failing)
        end(world, stayed)
        assert await world.wait(lambda: stayed not in world.ledger(ledger_id).fragments[1].ensemble)
        assert stayed in world.ledger(ledger_id).fragments[0].ensemble
        state = JobState.BLOCKED if error is EntryNotFoundError else JobState.QUEUED
        job = await world.wait_for_job(ledger_id, state)
        assert job.name.urgency == RepairClass.LAST_COPY
        monkeypatch.undo()
        start_again(world, stayed)
        await world.wait_for_state(stayed, Lifecycle.ACTIVE)
        assert await world.wait(lambda: lacks(world, world.ledger(ledger_id)) == {})

    play(story, bookies=5)
