"""Which fragment is copied next, in whose place, and when again after a failure (rule 11.2)."""

import asyncio
from dataclasses import replace

import pytest

from ledger_client.writing.in_sync_members import (
    COPY_PAUSE_MAX_S,
    CopyFailures,
    InSyncMembers,
    next_behind,
    replaced_by,
)
from ledger_client.writing.pacing import Call, LedgerTurns, TurnKey
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.server.overriding import override
from tests.support.ledger_client.writer_world import World, run
from tests.support.sample_ledgers import fragments

A, B, C, D = map(BookieId, "abcd")


def metadata_of(*parts: tuple[int, str]) -> LedgerMetadata:
    found: list[LedgerMetadata] = []

    async def scenario(world: World) -> None:
        found.append(replace(world.metadata, fragments=fragments(*parts)))

    run(scenario)
    return found[0]


@pytest.mark.parametrize(
    ("parts", "blocked", "wanted"),
    [
        (((0, "abc"),), (), None),
        (((0, "abc"), (5, "abc")), (), None),
        (((0, "ab"), (5, "abc")), (), ("c", 0)),
        (((0, "ab"), (5, "ab"), (9, "abc")), (), ("c", 5)),
        (((0, "ab"), (5, "ab"), (9, "abc")), ((5, "c"),), ("c", 0)),
        (((0, "ab"), (5, "ab"), (9, "abc")), ((5, "c"), (0, "c")), None),
        (((0, "a"), (5, "ab"), (9, "abc")), ((5, "c"),), ("b", 0)),
        (((0, "abd"), (5, "abc")), (), ("c", 0)),
    ],
)
def test_the_newest_fragment_that_a_member_lacks_is_copied_first(
    parts: tuple[tuple[int, str], ...],
    blocked: tuple[tuple[int, str], ...],
    wanted: tuple[str, int] | None,
) -> None:
    found = next_behind(metadata_of(*parts), lambda first, target: (first, target) not in blocked)
    assert (None if found is None else (found[0], found[1].first_entry_id)) == wanted


def test_a_copy_takes_the_place_of_a_former_member_only_in_a_full_fragment() -> None:
    metadata = metadata_of((0, "ab"), (5, "adb"), (9, "abc"))
    assert [replaced_by(metadata, fragment) for fragment in metadata.fragments[:2]] == [None, D]


def test_pauses_after_failures_double_up_to_a_limit() -> None:
    failures, now = CopyFailures(), 100.0
    first, other = EntryId(0), EntryId(5)
    assert failures.may_try(first, C, now)
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, COPY_PAUSE_MAX_S, COPY_PAUSE_MAX_S):
        failures.note(first, C, now)
        assert not failures.may_try(first, C, now + pause_s - 0.001)
        assert failures.may_try(first, C, now + pause_s)
        assert failures.may_try(other, C, now)
        assert failures.may_try(first, D, now)
        now += pause_s
    failures.clear(first, C)
    failures.clear(first, C)
    assert failures.may_try(first, C, now - 10.0)
    failures.note(first, C, now)
    assert failures.may_try(first, C, now + 1.0)


class NotedTurns(LedgerTurns):
    """Turns that note who wants one."""

    wanted: tuple[TurnKey, ...] = ()

    @override
    def want(self, key: TurnKey, begin: Call, *, urgent: bool) -> None:
        self.wanted = (*self.wanted, key)
        super().want(key, begin, urgent=urgent)


def test_a_ledger_that_lacks_a_member_and_has_nothing_to_copy_takes_no_turn() -> None:
    async def scenario(world: World) -> None:
        turns = NotedTurns(4, world.services.slices)
        services = replace(world.services, copy_turns=turns)
        world.members = InSyncMembers(world.shell, services, world.keys)
        world.append()
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_for(5.0)
        assert (world.ensemble, turns.wanted) == ("ab", ())
        world.bookies.fail("c", None)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)
        assert len(turns.wanted) == 1

    run(scenario)
