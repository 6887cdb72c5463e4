"""Ledgers that bookies hold and the metadata does not know are made again of their copies."""

from collections.abc import Mapping

import pytest

from ledger_client.bookies.pool import CallFailure
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import DigestType, LedgerMetadata, LedgerState
from quire.repair.rescue import FoundCopies, RescueSurvey, rescued_ledger
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.ledger_world import LEDGER
from tests.support.repair.loss_world import NOW_MS, LossWorld, lost_of
from tests.support.sample_ledgers import closed_ledger, ledger_of

TOKEN = UpdateToken(bytes(16))
KEYS = LedgerKeys.of(closed_ledger("abc"), b"secret")


def held(lac: int, copies: Mapping[str, list[Range]], *, all_answered: bool = True) -> FoundCopies:
    replicas = FoundCopies(KEYS, lac=lac, all_answered=all_answered)
    replicas.readable = {BookieId(name): ranges for name, ranges in copies.items()}
    return replicas


def made_of(replicas: FoundCopies) -> LedgerMetadata:
    return rescued_ledger(replicas, now_ms=NOW_MS, token=TOKEN)


def fragments_of(ledger: LedgerMetadata) -> list[tuple[int, str]]:
    return [(fragment.first_entry_id, "".join(fragment.ensemble)) for fragment in ledger.fragments]


def test_each_fragment_names_the_bookies_that_have_its_entries() -> None:
    replicas = held(19, {"a": [(0, 9)], "b": [(0, 19)], "c": [(5, 19)]})
    ledger = made_of(replicas)
    assert fragments_of(ledger) == [(0, "ab"), (5, "abc"), (10, "bc")]
    assert (ledger.state, ledger.last_entry_id) == (LedgerState.CLOSED, 19)
    assert ledger.quorum.ensemble_size == 3
    assert (replicas.lost, replicas.fewest_copies) == ([], 2)


@pytest.mark.parametrize(
    ("lac", "ranges", "last", "lost"),
    [
        (9, [(0, 9)], 9, []),
        (7, [(0, 9)], 9, []),  # stored, and perhaps acknowledged
        (9, [(0, 9), (12, 14)], 9, []),  # entry 10 was never stored, so none after it is
        (9, [(0, 6), (8, 9)], 9, [(7, 7)]),
        (9, [(3, 5)], 9, [(0, 2), (6, 9)]),
        (-1, [(2, 3)], -1, []),
        (-1, [], -1, []),
    ],
)
def test_where_a_ledger_ends(lac: int, ranges: list[Range], last: int, lost: list[Range]) -> None:
    replicas = held(lac, {"a": ranges})
    assert (replicas.last_entry_id, replicas.lost) == (last, lost)
    ledger = made_of(replicas)
    assert (ledger.last_entry_id, lost_of(ledger)) == (last, lost)


def test_without_certainty_it_ends_at_the_last_entry_that_is_known() -> None:
    replicas = held(9, {"a": [(0, 9), (12, 14)]}, all_answered=False)
    assert (replicas.last_entry_id, replicas.lost) == (14, [(10, 11)])
    replicas = held(9, {"a": [(0, 9)]})
    replicas.damaged = {BookieId("b"): [(9, 11)]}
    assert not replicas.is_certain
    assert (replicas.last_entry_id, replicas.lost) == (11, [(10, 11)])


async def read(world: LossWorld, holders: str, *, fence: bool = True) -> FoundCopies:
    survey = RescueSurvey(world.bookies.pool)
    names = [BookieId(name) for name in holders]
    replicas = await survey.read(LEDGER, names, b"secret", fence=fence)
    assert replicas is not None
    return replicas


def write(world: LossWorld, to: str, first: int = 0, stop: int = 10) -> None:
    for entry_id in range(first, stop):
        payload = b"entry %d" % entry_id
        world.bookies.write(
            entry_id, [payload], lac=entry_id - 1, length_before=7 * entry_id, to=to
        )


@pytest.mark.parametrize("digest", list(DigestType))
def test_all_copies_are_read_and_the_bookies_fenced(digest: DigestType) -> None:
    async def story() -> None:
        world = LossWorld(ledger_of((0, "abc"), digest=digest))
        write(world, "a,b")
        write(world, "c", 4, 10)
        world.bookies["b"].damaged = {3, 6}
        replicas = await read(world, "abc")
        assert replicas.keys == world.keys
        assert replicas.readable == {"a": [(0, 9)], "b": [(0, 2), (4, 5), (7, 9)], "c": [(4, 9)]}
        assert replicas.damaged[BookieId("b")] == [(3, 3), (6, 6)]
        assert (replicas.is_certain, replicas.last_entry_id) == (True, 9)
        assert replicas.sizes == [(0, 9, 70)]
        assert all(world.bookies[name].is_fenced for name in "abc")
        ledger = made_of(replicas)
        await world.ledgers.create(ledger)
        assert await world.stored() == ledger
        assert (ledger.length, ledger.creation_token, ledger.digest) == (70, TOKEN, digest)
        assert LedgerKeys.of(ledger, b"secret") == world.keys
        assert world.bookies.attached == 0

    run_simulation(story, 1)


def test_a_look_fences_nothing_and_a_bookie_that_fails_leaves_doubt() -> None:
    async def story() -> None:
        world = LossWorld(ledger_of((0, "abc")))
        write(world, "a,b")
        world.bookies.fail("b", CallFailure.LOST)
        replicas = await read(world, "ab", fence=False)
        assert (replicas.is_certain, list(replicas.failures)) == (False, ["b"])
        assert replicas.last_entry_id == EntryId(9)
        assert not any(world.bookies[name].is_fenced for name in "ab")

    run_simulation(story, 1)


def test_a_ledger_without_a_key_has_no_entry() -> None:
    async def story() -> None:
        world = LossWorld(ledger_of((0, "abc")))
        survey = RescueSurvey(world.bookies.pool)
        assert await survey.read(LEDGER, [BookieId("a")], b"", fence=False) is None

    run_simulation(story, 1)
