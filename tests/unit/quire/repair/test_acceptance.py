"""Search for lost entries and their acceptance, with bookies and metadata in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import pytest

from bookie.wire.messages import Status
from ledger_client.bookies.pool import CallFailure
from ledger_client.errors import LedgerNotFoundError, MetadataConflictError, UnauthorizedError
from metadata.errors import VersionConflictError
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.lost_entries import LOST_RANGES_MAX
from metadata.repair.lifecycle import Lifecycle
from quire.repair.losses import (
    ATTEMPTS_MAX,
    DAMAGED_PAUSE_S,
    DAMAGED_READS_MAX,
    HAS_A_COPY,
    LossAcceptance,
    LossParts,
)
from tests.simulation.loop import run_simulation
from tests.support.repair.loss_world import NOW_MS, LossWorld, lost_of
from tests.support.sample_ledgers import closed_ledger

TOKEN = UpdateToken(bytes(16))


class World(LossWorld):
    """One closed ledger of ten entries on the bookies a, b, c, and one more bookie, d."""

    def acceptance(self, *, gives_up_unknown: bool = False) -> LossAcceptance:
        return LossAcceptance(self.parts, self.survey(), gives_up_unknown=gives_up_unknown)

    async def lost(self) -> list[tuple[int, int]]:
        return lost_of(await self.stored())


Story = Callable[[World], Awaitable[None]]


def play(story: Story, ledger: LedgerMetadata | None = None, **held: str) -> None:
    """Run a story; `held` names the entries of each bookie, as digits, all if it is not given."""
    stored = closed_ledger("abc") if ledger is None else ledger

    async def main() -> None:
        world = World(stored)
        await world.ledgers.create(stored)
        for name in "abc":
            for digit in held.get(name, "0123456789"):
                entry_id = int(digit)
                payload = b"entry %d" % entry_id
                world.bookies.write(
                    entry_id, [payload], lac=entry_id - 1, length_before=7 * entry_id, to=name
                )
        await story(world)
        await world.store.aclose()

    run_simulation(main, 1, until_s=600.0)


def test_entries_whose_bookies_are_all_lost_are_accepted() -> None:
    async def story(world: World) -> None:
        before = await world.stored()
        await world.lose("ab")
        await world.lose("c", Lifecycle.LOST, Lifecycle.DRAINED, Lifecycle.REMOVED)
        ledger, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ((0, 9),)
        assert ledger == await world.stored()
        assert [lost_range.accepted_ms for lost_range in ledger.lost] == [NOW_MS]
        assert (ledger.last_entry_id, ledger.length) == (before.last_entry_id, before.length)
        assert not any(bookie.reads for bookie in world.bookies.bookies.values())

    play(story)


def test_entries_that_one_bookie_returns_are_kept() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == (((4, 4), (8, 9)), ())
        assert await world.lost() == [(4, 4), (8, 9)]
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == (), "nothing more is lost"

    play(story, c="0123567")


@pytest.mark.parametrize("failure", [CallFailure.TIMEOUT, CallFailure.REFUSED, CallFailure.LOST])
def test_a_bookie_that_is_only_away_is_no_loss(failure: CallFailure) -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].failure = failure
        ledger, report = await world.acceptance().accept(LedgerId(7))
        assert (ledger.lost, report.lost, report.unknown) == ((), (), ((0, 9),))
        assert list(report.unsure_bookies) == ["c"]
        ledger, report = await world.acceptance(gives_up_unknown=True).accept(LedgerId(7))
        assert report.lost == ((0, 9),)

    play(story)


def test_a_bookie_that_is_up_is_never_given_up() -> None:
    """One call to it that fails must not lose what it holds."""

    async def story(world: World) -> None:
        await world.lose("ab")
        await world.register("c")
        world.bookies["c"].failure = CallFailure.TIMEOUT
        _, report = await world.acceptance(gives_up_unknown=True).accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ((0, 9),))
        assert list(report.unsure_bookies) == ["c"]
        assert await world.lost() == []

    play(story)


def test_a_bookie_in_limbo_is_no_loss() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].is_limbo = True
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ((8, 9),))
        assert report.unsure_bookies == {"c": "cannot say whether it has them (limbo)"}

    play(story, c="01234567")


def marked_ledger() -> LedgerMetadata:
    """Return a closed ledger with d as the target of a copy that did not end."""
    ledger = closed_ledger("abc")
    return replace(ledger, fragments=(replace(ledger.fragments[0], incoming=(BookieId("d"),)),))


def test_what_a_marked_bookie_returns_is_no_loss() -> None:
    """A copy to it was verified, and the source ended before it became a member."""

    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["d"].entries |= world.bookies["a"].entries
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ((4, 9),))
        assert report.unsure_bookies == {"d": HAS_A_COPY}
        await world.register("d")
        _, report = await world.acceptance(gives_up_unknown=True).accept(LedgerId(7))
        assert report.lost == (), "it is up"
        assert await world.lost() == []

    play(story, marked_ledger(), c="0123")


def test_a_marked_bookie_that_does_not_answer_is_unknown_until_it_is_lost() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["d"].failure = CallFailure.TIMEOUT
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ((4, 9),))
        await world.lose("d")
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ((4, 9),)

    play(story, marked_ledger(), c="0123")


def test_a_marked_bookie_without_a_copy_keeps_no_loss_from_being_accepted() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ((4, 9),)

    play(story, marked_ledger(), c="0123")


def test_a_lost_bookie_that_is_registered_is_asked() -> None:
    async def story(world: World) -> None:
        await world.lose("abc")
        await world.give_back("b")
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ())

    play(story)


def test_a_damaged_entry_is_lost_only_after_several_reads() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].damaged = {4}
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ((4, 4),)
        asked = [read.first_entry_id for read in world.bookies["c"].reads]
        assert asked.count(EntryId(4)) >= DAMAGED_READS_MAX

    play(story)


def test_many_damaged_entries_are_read_again_after_the_same_pauses() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].damaged = set(range(10))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ((0, 9),)
        asked = [read.first_entry_id for read in world.bookies["c"].reads]
        assert [asked.count(EntryId(number)) for number in range(10)] == [DAMAGED_READS_MAX] * 10
        assert loop.time() - began_s < DAMAGED_READS_MAX * DAMAGED_PAUSE_S

    play(story)


def test_a_ledger_that_is_gone_during_the_search_is_not_read_entry_by_entry() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        bookie, read_entries = world.bookies["c"], world.bookies.read_entries

        async def emptied(bookie_id, request, *, timeout_s):  # type: ignore[no-untyped-def]
            bookie.entries.clear()
            return await read_entries(bookie_id, request, timeout_s=timeout_s)

        world.bookies.read_entries = emptied  # type: ignore[method-assign]
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ((0, 9),))
        assert len(bookie.reads) == 1

    play(story)


def test_an_entry_that_is_returned_later_is_not_damaged() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].damaged = {4}
        asyncio.get_running_loop().call_later(0.7, world.bookies["c"].damaged.clear)
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ()

    play(story)


def test_an_entry_of_a_bookie_whose_disk_fails_meanwhile_is_not_lost() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].damaged = {4}
        world.bookies["c"].lists_left = 1
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ()
        assert (4, 4) in report.unknown
        assert list(report.unsure_bookies) == ["c"]

    play(story)


def test_a_wrong_password_declares_nothing_lost() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].refuses_reads = Status.UNAUTHORIZED
        with pytest.raises(UnauthorizedError):
            await world.acceptance().accept(LedgerId(7))
        assert await world.lost() == []

    play(story)


def test_other_refusals_are_unknown() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].refuses_reads = Status.CLOSING
        _, report = await world.acceptance().accept(LedgerId(7))
        assert (report.lost, report.unknown) == ((), ((0, 9),))

    play(story)


def on_read(world: World, name: str, change: Callable[[], Awaitable[object]]) -> None:
    """Make a change when a bookie is asked for the first time: during the search."""
    pool, is_done = world.bookies, False
    original = pool.list_entries

    async def list_entries(bookie_id, request, *, timeout_s):  # type: ignore[no-untyped-def]
        nonlocal is_done
        if bookie_id == name and not is_done:
            is_done = True
            await change()
        return await original(bookie_id, request, timeout_s=timeout_s)

    pool.list_entries = list_entries  # type: ignore[method-assign]


def test_a_bookie_that_returns_during_the_search_is_asked() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        on_read(world, "c", lambda: world.give_back("a"))
        _, report = await world.acceptance().accept(LedgerId(7))
        assert report.lost == ()
        assert await world.lost() == []

    play(story, c="0123")


def test_a_bookie_that_was_given_up_and_returns_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It registers after the search, and before the loss is stored."""
    up_among = LossParts.up_among

    async def then_returns(self: LossParts, bookie_ids: Iterable[BookieId]) -> frozenset[BookieId]:
        up = await up_among(self, bookie_ids)
        monkeypatch.setattr(LossParts, "up_among", up_among)
        await worlds[0].give_back("c")
        return up

    worlds: list[World] = []

    async def story(world: World) -> None:
        await world.lose("ab")
        world.bookies["c"].failure = CallFailure.REFUSED
        worlds.append(world)
        monkeypatch.setattr(LossParts, "up_among", then_returns)
        _, report = await world.acceptance(gives_up_unknown=True).accept(LedgerId(7))
        assert report.lost == ()
        assert await world.lost() == []

    play(story)


def test_a_repair_that_swaps_during_the_search_begins_it_again() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")

        async def swap() -> None:
            ledger, version = await world.parts.read(LedgerId(7))
            world.bookies.bookies[BookieId("d")] = world.bookies["c"]
            members = (BookieId("d"), *ledger.fragments[0].ensemble[1:])
            fragment = replace(ledger.fragments[0], ensemble=members)
            changed = ledger.with_fragment(0, fragment, TOKEN)
            await world.parts.ledgers.compare_and_set(changed, version)

        on_read(world, "c", swap)
        ledger, report = await world.acceptance().accept(LedgerId(7))
        assert [answer.bookie_id for answer in report.answers] == ["d", "b", "c"]
        assert ledger.fragments[0].ensemble[0] == "d", "the swap is kept"
        assert await world.lost() == [(4, 9)]

    play(story, c="0123")


def test_two_acceptances_at_once_store_one_list() -> None:
    async def story(world: World) -> None:
        await world.lose("ab")
        both = await asyncio.gather(
            world.acceptance().accept(LedgerId(7)), world.acceptance().accept(LedgerId(7))
        )
        assert sorted(len(report.lost) for _, report in both) == [0, 1]
        assert await world.lost() == [(4, 9)]

    play(story, c="0123")


def test_it_stops_after_several_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        await world.lose("abc")
        attempts = 0

        async def conflict(*_: object) -> None:
            nonlocal attempts
            attempts += 1
            raise VersionConflictError("path", (await world.parts.read(LedgerId(7)))[1])

        monkeypatch.setattr(world.parts.ledgers, "compare_and_set", conflict)
        with pytest.raises(MetadataConflictError, match="nothing was accepted"):
            await world.acceptance().accept(LedgerId(7))
        assert attempts == ATTEMPTS_MAX

    play(story)


def test_too_many_ranges_are_refused() -> None:
    many = [(2 * number, 2 * number) for number in range(LOST_RANGES_MAX)]
    ledger = replace(closed_ledger("abc"), last_entry_id=EntryId(3 * LOST_RANGES_MAX))

    async def story(world: World) -> None:
        await world.lose("abc")
        on_read(world, "c", lambda: asyncio.sleep(0))
        _, report = await world.acceptance().accept(LedgerId(7))
        assert len(report.lost) == LOST_RANGES_MAX, "those between the accepted ones, and the rest"
        assert len(await world.lost()) == 2 * LOST_RANGES_MAX

    with pytest.raises(MetadataConflictError, match="delete the ledger"):
        play(story, ledger.with_lost(many, 5, TOKEN))


def test_a_deleted_ledger_is_not_found() -> None:
    async def story(world: World) -> None:
        await world.parts.ledgers.delete(LedgerId(7))
        with pytest.raises(LedgerNotFoundError):
            await world.acceptance().accept(LedgerId(7))

    play(story)
