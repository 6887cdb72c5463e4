"""What is remembered of missing copies when a bookie does not answer at a later comparison."""

import random

import pytest

from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from metadata.ids import BookieId, LedgerId, Version
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.directory import BookieDirectory
from metadata.registry.registration import BookieRegistration
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.repair import missing_copies
from quire.repair.missing_copies import Comparison, MissingCopies
from tests.support.ledger_client.scripted_bookie import ScriptedAddresses
from tests.support.sample_ledgers import bookies

LEDGER = LedgerId(7)
A, B = bookies("ab")
FIVE: tuple[Range, ...] = ((5, 9),)


class Compared(MissingCopies):
    """Missing copies whose comparisons are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store, rng = MemoryMetadataStore(MemoryMetadataServer()), random.Random(1)
        directory = BookieDirectory(store, rng)
        monkeypatch.setattr(
            BookieDirectory,
            "bookies",
            {bookie: BookieRegistration(bookie, "h", 1) for bookie in (A, B)},
        )
        pool = BookiePool(ScriptedAddresses(), config=ClientConfig(), rng=rng)
        ledgers = LedgerStore(store, rng, lambda: 5)
        super().__init__(ledgers, pool, directory, lambda: None)
        self._monkeypatch = monkeypatch

    async def see(
        self, *, missing: dict[BookieId, tuple[Range, ...]], silent: str = "", version: int = 1
    ) -> None:
        async def compare(*_: object) -> Comparison:
            unknown = dict.fromkeys(bookies(silent), "it did not answer")
            return Comparison(missing, unknown, bookies(silent), Version(version))

        self._monkeypatch.setattr(missing_copies, "compare", compare)
        await self._compare(LEDGER)


@pytest.fixture
async def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    return Compared(monkeypatch)


async def test_a_bookie_that_does_not_answer_still_lacks_what_it_lacked(
    compared: Compared,
) -> None:
    await compared.see(missing={A: FIVE})
    assert compared.read() == {LEDGER: {A: FIVE}}
    await compared.see(missing={}, silent="a")
    assert compared.read() == {LEDGER: {A: FIVE}}
    await compared.see(missing={B: ((1, 1),)}, silent="a")
    assert compared.read() == {LEDGER: {A: FIVE, B: ((1, 1),)}}
    await compared.see(missing={}, silent="b")
    assert compared.read() == {LEDGER: {B: ((1, 1),)}}, "a has listed them"
    await compared.see(missing={})
    assert compared.read() == {}


async def test_what_was_found_at_another_version_is_not_kept(compared: Compared) -> None:
    """The entries may be lost by consent now, or of a fragment that has other members."""
    await compared.see(missing={A: FIVE})
    await compared.see(missing={}, silent="a", version=2)
    assert compared.read() == {}
