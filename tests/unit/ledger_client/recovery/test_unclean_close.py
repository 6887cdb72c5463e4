"""Where an unclean recovery closes a ledger, in virtual time (rule 11.6)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from ledger_client import Quorum, RecoveryUndecidedError
from ledger_client.config import ClientConfig
from ledger_client.recovery.unclean_recovery import UncleanRecovery
from metadata.ids import UpdateToken
from metadata.ledgers.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
)
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataStore
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.ledger_client.recovery_world import World
from tests.support.metadata.scripted_faults import ScriptedFaults, writes_of
from tests.support.sample_ledgers import bookies, ledger_of

TOKEN = UpdateToken(b"drawn by a test.")
FRAGMENTS = ((0, "ef"), (5, "cd"), (8, "ab"))
STOP = 10
"""End of the entries in the last fragment."""


class Ledger:
    """A ledger in recovery, with three fragments on bookies of their own."""

    def __init__(self, fragments: Sequence[tuple[int, str]] = FRAGMENTS, stop: int = STOP) -> None:
        ledger = ledger_of(*fragments, quorum=Quorum.in_sync(2, 1).spec)
        self.world = World(replace(ledger, state=LedgerState.IN_RECOVERY))
        ends = [first for first, _ in fragments[1:]] + [stop]
        for (first, names), end in zip(fragments, ends, strict=True):
            if first == end:
                continue
            texts, before = payloads(first, end - first), length(first)
            self.world.bookies.write(
                first, texts, lac=first - 1, length_before=before, to=",".join(names)
            )

    async def close(self, *, ledgers: LedgerStore | None = None, **wanted: bool) -> LedgerMetadata:
        world = self.world
        recovery = UncleanRecovery(
            pool=world.bookies.pool,
            ledgers=ledgers or world.ledgers,
            keys=world.keys,
            config=ClientConfig(),
            rng=Random(2),
            draw_token=lambda: TOKEN,
            **wanted,
        )
        try:
            return await recovery.close()
        finally:
            assert world.bookies.attached == 0

    async def closed_elsewhere(self) -> LedgerMetadata:
        stored, version = await self.world.ledgers.get(LEDGER, fresh=True)
        closed = stored.with_given_up(2, length(8), UpdateToken(b"another client. "))
        await self.world.ledgers.compare_and_set(closed, version)
        return closed


def run(scenario: Callable[[Ledger], Awaitable[None]], ledger: Ledger | None = None) -> None:
    async def main() -> None:
        it = ledger or Ledger()
        it.world.version = await it.world.ledgers.create(it.world.metadata)
        await scenario(it)

    run_simulation(main, 1, until_s=600)


@pytest.mark.parametrize(
    ("lost", "last", "given_up"),
    [("ab", 7, [8]), ("abc", 7, [8]), ("abcd", 4, [5, 8]), ("abcde", 4, [5, 8]), ("", 7, [8])],
)
def test_a_ledger_closes_before_the_newest_fragments_that_cannot_be_read(
    lost: str, last: int, given_up: list[int]
) -> None:
    async def scenario(it: Ledger) -> None:
        it.world.bookies.fail(lost)
        closed = await it.close()
        assert closed == (await it.world.ledgers.get(LEDGER, fresh=True))[0]
        assert (closed.state, closed.update_token) == (LedgerState.CLOSED, TOKEN)
        assert (closed.last_entry_id, closed.length) == (last, length(last + 1))
        assert [fragment.first_entry_id for fragment in closed.given_up] == given_up

    run(scenario)


def test_without_any_readable_fragment_the_missing_bookies_are_named() -> None:
    """Those of the last fragment are not: it is given up in any case."""

    async def scenario(it: Ledger) -> None:
        it.world.bookies.fail("abcdef")
        with pytest.raises(RecoveryUndecidedError, match="start one of c, d, e, f and") as raised:
            await it.close()
        assert sorted(raised.value.missing) == ["c", "d", "e", "f"]
        assert "no replica returned entry 7" in raised.value.missing["c"]
        assert "no replica returned entry 4" in raised.value.missing["e"]
        assert raised.value.ledger_id == LEDGER
        assert (await it.world.ledgers.get(LEDGER, fresh=True))[0] == it.world.metadata

    run(scenario)


def test_a_bookie_of_two_fragments_is_named_with_its_newest_entry() -> None:
    async def scenario(it: Ledger) -> None:
        it.world.bookies.fail("abcdef")
        with pytest.raises(RecoveryUndecidedError) as raised:
            await it.close()
        assert "entry 7" in raised.value.missing["c"]

    run(scenario, Ledger(((0, "ac"), (5, "cd"), (8, "ab"))))


def test_the_only_fragment_is_given_up_on_request_alone() -> None:
    async def scenario(it: Ledger) -> None:
        with pytest.raises(RecoveryUndecidedError, match="start one of e, f and") as raised:
            await it.close()
        assert raised.value.missing == {}
        closed = await it.close(gives_up_all=True)
        assert (closed.last_entry_id, closed.length) == (-1, 0)
        assert [fragment.ensemble for fragment in closed.given_up] == [bookies("ef")]

    run(scenario, Ledger(FRAGMENTS[:1], 5))


def test_nothing_more_is_given_up_on_request_than_cannot_be_read() -> None:
    async def scenario(it: Ledger) -> None:
        it.world.bookies.fail("abcd")
        closed = await it.close(gives_up_all=True)
        assert (closed.last_entry_id, len(closed.given_up)) == (4, 2)

    run(scenario)


def test_a_complete_ledger_is_given_up_on_request() -> None:
    async def scenario(it: Ledger) -> None:
        it.world.bookies.fail("abcdef")
        closed = await it.close(gives_up_all=True)
        assert (closed.last_entry_id, closed.length) == (-1, 0)
        assert [fragment.first_entry_id for fragment in closed.given_up] == [0, 5, 8]

    run(scenario)


def test_an_empty_last_fragment_is_kept_if_the_one_before_it_can_be_read() -> None:
    async def scenario(it: Ledger) -> None:
        closed = await it.close(is_last_fragment_empty=True)
        assert (closed.last_entry_id, closed.length, closed.given_up) == (7, length(8), ())
        assert closed.fragments == it.world.metadata.fragments
        assert closed.update_token == TOKEN

    run(scenario, Ledger(stop=8))


def test_an_empty_last_fragment_is_given_up_with_one_that_cannot_be_read() -> None:
    async def scenario(it: Ledger) -> None:
        it.world.bookies.fail("cd")
        closed = await it.close(is_last_fragment_empty=True)
        assert (closed.last_entry_id, closed.length) == (4, length(5))
        assert [fragment.first_entry_id for fragment in closed.given_up] == [5, 8]

    run(scenario, Ledger(stop=8))


# -- other clients ---------------------------------------------------------------------------------


def test_a_ledger_that_another_client_closed_stays_as_it_is_and_is_not_read() -> None:
    async def scenario(it: Ledger) -> None:
        stored = await it.closed_elsewhere()
        it.world.bookies.fail("cd")
        it.world.server.faults = ScriptedFaults(missed=1)
        store = MemoryMetadataStore(it.world.server)
        assert await it.close(ledgers=LedgerStore(store, Random(1), lambda: 0)) == stored
        assert not any(bookie.reads for bookie in it.world.bookies.bookies.values())

    run(scenario)


def test_a_close_by_another_client_meanwhile_wins() -> None:
    async def scenario(it: Ledger) -> None:
        store = MemoryMetadataStore(it.world.server)
        it.world.server.faults = faults = ScriptedFaults(writes_of(store))
        faults.meanwhile = it.closed_elsewhere
        closed = await it.close(ledgers=LedgerStore(store, Random(1), lambda: 0))
        assert faults.meanwhile is None
        assert closed == (await it.world.ledgers.get(LEDGER, fresh=True))[0]
        assert closed.update_token != TOKEN

    run(scenario)
