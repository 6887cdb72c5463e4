"""Writes whose answer is lost after they were applied (protocol 1.3): the store sends each once and
says that the outcome is unknown; what is above it repeats the write, and applies it once.
"""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import EntryId, Version
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.interface import CompareAndSet, Create, MetadataStore
from metadata.store.number_blocks import NumberBlocks
from tests.support.metadata.samples import A, B, D, open_ledger, token
from tests.support.metadata.scripted_zookeeper import ScriptedEnsemble

Write = Callable[[MetadataStore], Coroutine[Any, Any, object]]
WRITES: dict[str, tuple[Write, type[Exception]]] = {
    "create": (lambda store: store.create("/b", b""), NodeExistsError),
    "set": (lambda store: store.compare_and_set("/a", b"1", Version(0)), VersionConflictError),
    "delete": (lambda store: store.delete("/a", Version(0)), NodeNotFoundError),
    "multi": (
        lambda store: store.multi([CompareAndSet("/a", b"1", Version(0)), Create("/b", b"")]),
        VersionConflictError,
    ),
}


def lose_next(ensemble: ScriptedEnsemble, store: MetadataStore, name: str) -> None:
    ensemble.server_of(store.session_id).unanswered.append(name)


def count_of(ensemble: ScriptedEnsemble, name: str) -> int:
    return sum(server.requests.count(name) for server in ensemble.servers)


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_is_sent_once_and_its_outcome_is_unknown(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, name: str
) -> None:
    await ensemble_store.create("/a", b"0")
    write, found_applied = WRITES[name]
    before, changes = count_of(ensemble, name), len(ensemble.service.changes)
    lose_next(ensemble, ensemble_store, name)
    with pytest.raises(OutcomeUnknownError):
        await write(ensemble_store)
    assert count_of(ensemble, name) == before + 1
    applied = len(ensemble.service.changes)
    assert applied > changes
    with pytest.raises(found_applied):
        await write(ensemble_store)
    assert len(ensemble.service.changes) == applied, "the repetition changes nothing"


async def test_a_change_of_a_ledger_is_applied_once(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore
) -> None:
    ledgers, ledger = LedgerStore(ensemble_store, Random(7), lambda: 5), open_ledger()
    version = await ledgers.create(ledger)
    for number in (3, 4):
        changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(number))
        lose_next(ensemble, ensemble_store, "set")
        stored = await ledgers.compare_and_set(changed, version)
        assert stored == version + 1
        assert await ledgers.get(ledger.ledger_id, fresh=True) == (changed, stored)
        version = stored


async def test_a_ledger_is_created_and_deleted_once(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore
) -> None:
    ledgers, ledger = LedgerStore(ensemble_store, Random(7), lambda: 5), open_ledger()
    lose_next(ensemble, ensemble_store, "multi")
    lose_next(ensemble, ensemble_store, "create")
    assert await ledgers.create(ledger) == 0
    assert await ledgers.get(ledger.ledger_id) == (ledger, 0)
    lose_next(ensemble, ensemble_store, "multi")
    assert await ledgers.delete(ledger.ledger_id)
    assert not await ledgers.delete(ledger.ledger_id)


async def test_numbers_of_a_block_that_may_be_taken_are_not_used_twice(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore
) -> None:
    given: list[int] = []
    for name in ("create", "set", "set"):
        blocks = NumberBlocks(ensemble_store, Random(7), "/numbers")
        lose_next(ensemble, ensemble_store, name)
        given += [await blocks.next(), await blocks.next()]
    assert len(set(given)) == len(given)
