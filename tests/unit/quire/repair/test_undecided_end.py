"""Close of a ledger without the bookies that could decide its end, with bookies in memory."""

from collections.abc import Awaitable, Callable

import pytest

from ledger_client.bookies.pool import BookieCallError, CallFailure
from ledger_client.errors import RecoveryUndecidedError
from metadata.errors import VersionConflictError
from metadata.ids import ENTRY_ID_MAX, BookieId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from quire.repair.undecided_end import UndecidedEnd
from tests.simulation.loop import run_simulation
from tests.support.repair.loss_world import LossWorld, lost_of
from tests.support.sample_ledgers import open_ledger

TOKEN = UpdateToken(bytes(16))
LEDGER = open_ledger("abc").with_recovery_begun(TOKEN)
SIZE = len(b"entry 0")


class World(LossWorld):
    """One ledger in recovery on the bookies a, b, c; entries have SIZE bytes each."""

    def end(self, *, gives_up_unknown: bool = False) -> UndecidedEnd:
        return UndecidedEnd(
            self.parts,
            self.bookies.pool,
            self.keys,
            self.survey(),
            gives_up_unknown=gives_up_unknown,
        )

    def write(self, ids: str, to: str, lac: int | None = None) -> None:
        """Store entries, one batch each."""
        for entry_id in map(int, ids):
            known = entry_id - 1 if lac is None else lac
            payloads = [b"entry %d" % entry_id]
            before = SIZE * entry_id
            self.bookies.write(entry_id, payloads, lac=known, length_before=before, to=to)


Story = Callable[[World], Awaitable[None]]


def play(story: Story, ledger: LedgerMetadata = LEDGER) -> None:
    async def main() -> None:
        world = World(ledger)
        await world.ledgers.create(ledger)
        await story(world)
        await world.store.aclose()

    run_simulation(main, 1, until_s=600.0)


def test_it_closes_at_the_last_entry_that_is_left() -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        await world.lose("ab")
        ledger, report = await world.end().close(LedgerId(7))
        assert report is not None
        assert ledger == await world.stored()
        assert (ledger.state, ledger.last_entry_id) == (LedgerState.CLOSED, 4)
        assert ledger.length == 5 * SIZE
        assert lost_of(ledger) == [(5, ENTRY_ID_MAX)], "a and b may have acknowledged entry 5"
        assert list(report.gone) == ["a", "b"]
        assert world.bookies["c"].is_fenced

    play(story)


def test_a_gap_is_lost_and_not_the_end() -> None:
    async def story(world: World) -> None:
        world.write("0123", "a,b,c")
        world.write("45", "a,b")
        world.write("67", "a,b,c", lac=3)
        await world.lose("ab")
        ledger, _ = await world.end().close(LedgerId(7))
        assert ledger.last_entry_id == 7
        assert ledger.length == 8 * SIZE, "the batch of entry 6 says how many bytes are before it"
        assert lost_of(ledger) == [(4, 5), (8, ENTRY_ID_MAX)]

    play(story)


def test_entries_before_the_lac_existed() -> None:
    async def story(world: World) -> None:
        world.write("0123", "a,b")
        world.write("4", "a,b,c", lac=3)
        world.bookies["c"].entries.pop(4)
        await world.lose("ab")
        ledger, _ = await world.end().close(LedgerId(7))
        assert (ledger.last_entry_id, ledger.length) == (3, 0), "no batch implies the sizes"
        assert lost_of(ledger) == [(0, 3), (4, ENTRY_ID_MAX)]

    play(story)


def test_a_ledger_of_which_nothing_is_left_is_closed_empty() -> None:
    async def story(world: World) -> None:
        await world.lose("abc")
        ledger, _ = await world.end().close(LedgerId(7))
        assert (ledger.last_entry_id, ledger.length) == (-1, 0)
        assert lost_of(ledger) == [(0, ENTRY_ID_MAX)]

    play(story)


def test_earlier_fragments_can_be_lost_too() -> None:
    ledger = open_ledger("abc", "abc").with_recovery_begun(TOKEN)

    async def story(world: World) -> None:
        world.write("0123456789", "a,b")
        for entry_id in ("10", "11"):
            payloads = [b"entry 0"]
            world.bookies.write(
                int(entry_id), payloads, lac=9, length_before=SIZE * int(entry_id), to="a,b,c"
            )
        await world.lose("ab")
        found, _ = await world.end().close(LedgerId(7))
        assert (found.last_entry_id, found.length) == (11, 12 * SIZE)
        assert lost_of(found) == [(0, 9), (12, ENTRY_ID_MAX)]

    play(story, ledger)


@pytest.mark.parametrize("is_limbo", [False, True])
def test_a_member_that_is_not_lost_must_answer_or_be_given_up(is_limbo: bool) -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        await world.lose("a")
        world.bookies["b"].is_limbo = is_limbo
        world.bookies["b"].failure = None if is_limbo else CallFailure.TIMEOUT
        with pytest.raises(RecoveryUndecidedError) as raised:
            await world.end().close(LedgerId(7))
        assert list(raised.value.missing) == ["b"]
        assert (await world.stored()) == LEDGER
        ledger, report = await world.end(gives_up_unknown=True).close(LedgerId(7))
        assert report is not None
        assert list(report.silent) == ["b"]
        assert lost_of(ledger) == [(5, ENTRY_ID_MAX)]

    play(story)


def test_a_member_that_is_up_is_never_given_up() -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        await world.lose("a")
        await world.register("b")
        world.bookies["b"].failure = CallFailure.TIMEOUT
        with pytest.raises(RecoveryUndecidedError, match="it is up") as raised:
            await world.end(gives_up_unknown=True).close(LedgerId(7))
        assert list(raised.value.missing) == ["b"]
        assert (await world.stored()) == LEDGER

    play(story)


def test_a_search_changes_nothing() -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        await world.lose("ab")
        found = await world.end().search(LEDGER, Version(0), fence=False)
        assert found.end.last_entry_id == 4
        assert not world.bookies["c"].is_fenced
        assert await world.stored() == LEDGER

    play(story)


def test_a_bookie_that_returns_is_fenced_and_asked() -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        world.write("5", "a,b")
        await world.lose("ab")
        pool, original = world.bookies, world.bookies.list_entries

        async def list_entries(bookie_id, request, *, timeout_s):  # type: ignore[no-untyped-def]
            if world.bookies["a"].failure is not None:
                await world.give_back("a")
            return await original(bookie_id, request, timeout_s=timeout_s)

        pool.list_entries = list_entries  # type: ignore[method-assign]
        ledger, report = await world.end().close(LedgerId(7))
        assert report is not None
        assert list(report.gone) == ["b"]
        assert world.bookies["a"].is_fenced
        assert ledger.last_entry_id == 5, "entry 5 can be read again"

    play(story)


def test_a_bookie_that_was_given_up_and_returns_is_fenced_and_asked() -> None:
    """A bookie that is up is never given up: what it holds may have been acknowledged."""

    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        world.write("5", "a,b")
        await world.lose("a")
        world.bookies["b"].failure = CallFailure.REFUSED
        pool, original = world.bookies, world.bookies.list_entries

        async def list_entries(bookie_id, request, *, timeout_s):  # type: ignore[no-untyped-def]
            if world.bookies["b"].failure is not None:
                await world.give_back("b")
            return await original(bookie_id, request, timeout_s=timeout_s)

        pool.list_entries = list_entries  # type: ignore[method-assign]
        ledger, report = await world.end(gives_up_unknown=True).close(LedgerId(7))
        assert report is not None
        assert list(report.silent) == []
        assert world.bookies["b"].is_fenced
        assert ledger.last_entry_id == 5, "entry 5 can be read again"

    play(story)


def test_a_member_that_fenced_and_failed_then_is_asked_again_if_it_is_up() -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        world.write("5", "a,b")
        await world.lose("a")
        pool, original = world.bookies, world.bookies.list_entries
        asked = list[BookieId]()

        async def list_entries(bookie_id, request, *, timeout_s):  # type: ignore[no-untyped-def]
            asked.append(bookie_id)
            if bookie_id == "b" and asked.count(bookie_id) == 1:
                raise BookieCallError(bookie_id, "lost", failure=CallFailure.LOST)
            if bookie_id == "b" and asked.count(bookie_id) == 2:  # for entries up to the end
                await world.register("b")
            return await original(bookie_id, request, timeout_s=timeout_s)

        pool.list_entries = list_entries  # type: ignore[method-assign]
        ledger, _ = await world.end(gives_up_unknown=True).close(LedgerId(7))
        assert ledger.last_entry_id == 5

    play(story)


def test_another_recovery_that_closed_it_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.write("01234", "a,b,c")
        await world.lose("ab")
        ledgers = world.parts.ledgers
        store = ledgers.compare_and_set

        async def lose_the_race(changed: LedgerMetadata, version: Version) -> Version:
            monkeypatch.setattr(ledgers, "compare_and_set", store)
            first = changed.fragments[0].first_entry_id
            other = LEDGER.with_recovered((), first, 7, TOKEN)
            await store(other, version)
            raise VersionConflictError("path", version)

        monkeypatch.setattr(ledgers, "compare_and_set", lose_the_race)
        ledger, report = await world.end().close(LedgerId(7))
        assert (ledger.last_entry_id, report, ledger.lost) == (0, None, ())

    play(story)
