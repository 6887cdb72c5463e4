"""Copies of fragments against bookies in memory, in virtual time (protocol rules 9.1, 11.2)."""

import asyncio
from collections.abc import Callable

import pytest

from bookie.wire.messages import Status
from ledger_client.bookies.pool import CallFailure
from ledger_client.copying import CopyLimits, CopyProgress, CopyThrottle
from ledger_client.errors import (
    DigestMismatchError,
    EntryConflictError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    QuorumTimeoutError,
    UnauthorizedError,
)
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import DigestType, QuorumMode, QuorumSpec
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.copying_world import FAST, TOKEN, Forgetful, World, run, write
from tests.support.ledger_client.ledger_world import LEDGER, length
from tests.support.sample_ledgers import fragments

IN_SYNC = QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC)
DIGESTS = pytest.mark.parametrize("digest", list(DigestType))


# -- what is copied --------------------------------------------------------------------------------


@DIGESTS
def test_all_of_the_fragment_and_nothing_else_is_copied_before_the_target_is_named(
    digest: DigestType,
) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 63, per_batch=7)  # one batch crosses the fragment's end, at 40
        after, version = await world.copy()
        assert (after, version) == await world.others.get(LEDGER)
        assert after.fragments == fragments((0, "dbc"), (40, "abc"))
        assert world.is_whole(0, 39)
        assert world.bookies["d"].lac < 40
        for _, _, batch in world.bookies.adds:
            header = batch.header
            assert (header.lac, header.length_before) == (
                header.first_entry_id - 1,
                length(header.first_entry_id),
            )

    run(scenario, digest=digest)


@DIGESTS
def test_a_fragment_that_begins_within_a_batch_and_ends_with_the_ledger(
    digest: DigestType,
) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 75, per_batch=7)
        await world.copy(40)
        assert world.is_whole(40, 70)
        first = world.bookies["d"].entries[40][0].header
        assert (first.first_entry_id, first.length_before) == (40, length(40))

    run(scenario, digest=digest, closed_at=70)


def test_every_copied_entry_is_read_back_also_under_an_old_mark() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        write(world, 0, 40, to="d")
        marked = fragments((0, "abc"))[0]
        marked = type(marked)(marked.first_entry_id, marked.ensemble, (BookieId("d"),))
        await world.change(lambda now: now.with_fragment(0, marked, TOKEN))
        await world.copy()
        read = [
            number
            for request in world.bookies["d"].reads
            for number in range(request.first_entry_id, request.last_entry_id + 1)
        ]
        assert read == list(range(40))

    run(scenario)


def test_copies_pass_the_fence() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        world.bookies["d"].is_fenced = True
        await world.copy()
        assert world.is_whole(0, 39)

    run(scenario)


def test_damage_left_on_the_target_by_an_old_attempt_is_found() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        write(world, 0, 40, to="d")
        world.bookies.damage("d", 17)
        with pytest.raises(NotEnoughBookiesError) as raised:
            await world.copy()
        assert raised.value.entry_id is not None
        assert raised.value.entry_id <= 17
        assert (await world.stored()).fragments == world.metadata.fragments

    run(scenario)


def test_in_sync_members_catch_up_fragment_by_fragment() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 20, to="a,b")
        write(world, 20, 40, to="a")
        await world.copy(0, replaces=None)
        after, _ = await world.copy(20, replaces=None)
        assert after.fragments == fragments((0, "abd"), (20, "ad"), (40, "ad"))
        assert world.is_whole(0, 39)
        assert after.in_sync_members == ("a", "d")

    run(scenario, (0, "ab"), (20, "a"), (40, "ad"), quorum=IN_SYNC)


def test_only_entries_of_the_position_are_copied() -> None:
    quorum = QuorumSpec(5, 3, 2, 4)

    async def scenario(world: World) -> None:
        members = "abcxe"
        for stripe in range(10):
            to = ",".join(members[(stripe + number) % 5] for number in range(3)).replace("x", "f")
            write(world, 4 * stripe, 4 * stripe + 4, to=to)
        await world.copy(replaces="f")
        expected = [e for e in range(40) if 3 in [(e // 4 + number) % 5 for number in range(3)]]
        assert sorted(world.bookies["d"].entries) == expected
        assert world.progress[-1].copied_entries == len(expected)

    run(scenario, (0, "abcfe"), (40, "abcfe"), quorum=quorum)


def test_an_empty_fragment_names_the_target_at_once() -> None:
    async def scenario(world: World) -> None:
        after, _ = await world.copy(40)
        assert after.last_fragment.ensemble == ("d", "b", "c")
        assert world.sent() == []
        assert world.progress == [
            CopyProgress(LEDGER, after.fragments[1].first_entry_id, BookieId("d"), 0, 0, 0)
        ]

    run(scenario, closed_at=39)


def test_a_member_is_not_changed() -> None:
    async def scenario(world: World) -> None:
        assert (await world.copy())[0] == world.metadata
        assert world.sent() == []
        assert world.progress == []

    run(scenario, (0, "dbc"), (40, "abc"))


# -- progress and limits ---------------------------------------------------------------------------


def test_progress_is_reported_piece_by_piece_and_at_the_end() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        await world.copy()
        assert [progress.copied_entries for progress in world.progress] == [
            5,
            10,
            15,
            20,
            25,
            30,
            35,
            40,
            40,
        ]
        assert [progress.copied_bytes for progress in world.progress[:2]] == [length(5), length(10)]
        assert {progress.total_entries for progress in world.progress} == {40}

    run(scenario)


def test_no_more_requests_are_under_way_than_allowed() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        world.bookies["d"].delay_s = 1.0
        await world.copy()
        times = [time for time, _, _ in world.bookies.adds]
        # A piece takes two seconds: stored in one, read back in another.
        assert max(sum(t - 1.99 < time <= t for time in times) for t in times) == 3

    run(scenario, limits=CopyLimits(64, 3))


@pytest.mark.parametrize("bytes_per_s", [100.0, 1000.0])
def test_the_throttle_bounds_the_bytes_of_every_stretch_of_time(bytes_per_s: float) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        world.throttle = CopyThrottle(bytes_per_s)
        await world.copy()
        adds = [(time, len(batch.data)) for time, _, batch in world.bookies.adds]
        largest = max(size for _, size in adds)
        for index, (start, _) in enumerate(adds):
            for stop in range(index, len(adds)):
                taken = sum(size for _, size in adds[index : stop + 1])
                assert taken <= bytes_per_s * (adds[stop][0] - start) + largest + 1e-6
        total = sum(size for _, size in adds)
        took_s = simulation_loop().time()
        assert total / took_s > 0.8 * bytes_per_s, "and it is used"

    run(scenario, limits=CopyLimits(64, 2))


# -- sources that fail -----------------------------------------------------------------------------


@DIGESTS
def test_a_damaged_copy_is_skipped_for_the_next(digest: DigestType) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        for entry_id in range(0, 40, 5):
            world.bookies.damage("a", entry_id)
        world.bookies.damage("b", 10)
        await world.copy()
        assert world.is_whole(0, 39)

    run(scenario, digest=digest)


def test_gaps_of_one_source_are_filled_by_another() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        for gap in (3, 4, 5, 18):
            del world.bookies["a"].entries[gap]
        for gap in (1, 25):
            del world.bookies["b"].entries[gap]
        world.bookies["c"].failure = CallFailure.LOST
        await world.copy()
        assert world.is_whole(0, 39)
        for _, _, batch in world.bookies.adds:
            assert batch.header.length_before == length(batch.header.first_entry_id)
        for name in "ab":
            firsts = [request.first_entry_id for request in world.bookies[name].reads]
            assert firsts == sorted(firsts), "lengths add up without reading earlier entries"

    run(scenario)


def make_missing(world: World) -> None:
    for name in "abc":
        del world.bookies[name].entries[22]


def make_damaged(world: World) -> None:
    for name in "abc":
        world.bookies.damage(name, 22)


def make_limbo(world: World) -> None:
    make_missing(world)
    world.bookies["b"].is_limbo = True


@pytest.mark.parametrize(
    ("make", "kind", "entry_id"),
    [
        (make_missing, EntryNotFoundError, 22),
        (make_damaged, DigestMismatchError, 20),
        (make_limbo, QuorumTimeoutError, 22),
    ],
)
def test_an_entry_that_no_source_returns_blocks_the_copy(
    make: Callable[[World], None], kind: type[LedgerError], entry_id: int
) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        make(world)
        with pytest.raises(kind) as raised:
            await world.copy()
        assert raised.value.entry_id == entry_id
        assert (await world.stored()).fragments == world.metadata.fragments

    run(scenario)


# -- targets that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.READ_ONLY, NotEnoughBookiesError),
        (Status.FENCED, NotEnoughBookiesError),
        (Status.CLOSING, NotEnoughBookiesError),
        (Status.CONFLICT, EntryConflictError),
        (Status.UNAUTHORIZED, UnauthorizedError),
        (Status.DELETED, LedgerNotFoundError),
    ],
)
def test_a_target_that_refuses_is_not_named(status: Status, kind: type[LedgerError]) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        world.bookies["d"].refuses_adds = status
        with pytest.raises(kind) as raised:
            await world.copy()
        assert "d" in str(raised.value)
        assert raised.value.outcome == "not_written"
        assert (await world.stored()).fragments == world.metadata.fragments

    run(scenario)


@pytest.mark.parametrize("failure", [CallFailure.LOST, CallFailure.TIMEOUT])
def test_a_target_that_fails_midway_is_not_named(failure: CallFailure) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)

        def fail(progress: CopyProgress) -> None:
            world.progress.append(progress)
            world.bookies["d"].failure = failure

        world.on_progress = fail
        with pytest.raises(NotEnoughBookiesError) as raised:
            await world.copy()
        assert list(raised.value.excluded) == ["d"]
        assert 0 < world.progress[-1].copied_entries < 40
        assert (await world.stored()).fragments == world.metadata.fragments

    run(scenario)


def test_a_target_that_does_not_return_what_it_stored_is_not_named() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        world.bookies.bookies[BookieId("d")] = Forgetful()
        with pytest.raises(NotEnoughBookiesError):
            await world.copy()
        assert (await world.stored()).fragments == world.metadata.fragments

    run(scenario)


def test_other_bytes_with_valid_digests_are_not_treated_as_a_copy() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        foreign = world.bookies.write(10, [b"other"] * 5, lac=9, length_before=length(10), to="e")
        held = world.bookies["d"].entries
        for index, entry_id in enumerate(range(10, 15)):
            theirs = world.bookies["a"].entries[entry_id][1]
            held[entry_id] = (foreign, theirs)  # it accepts our bytes, and returns its own
            assert foreign.digests[index] != theirs
        with pytest.raises(NotEnoughBookiesError, match="other bytes"):
            await world.copy()

    run(scenario)


# -- cancelling ------------------------------------------------------------------------------------


def test_a_cancelled_copy_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        begun = asyncio.Event()
        world.on_progress = lambda _: begun.set()
        world.bookies["d"].delay_s = 1.0
        copying = asyncio.create_task(world.copy())
        await begun.wait()
        assert (await world.stored()).fragments[0].incoming == ("d",)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert (await world.stored()).fragments == world.metadata.fragments
        asked = len(world.sent()), len(world.bookies["d"].reads)
        await asyncio.sleep(10.0)  # virtual time: nothing may continue
        assert (len(world.sent()), len(world.bookies["d"].reads)) == asked

    run(scenario, limits=FAST)
