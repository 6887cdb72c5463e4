"""Contract of ids and names that are used again, as one suite that runs on each metadata store.

A ledger that is created again under its id would begin at version 0 again, and a compare-and-set of
the old ledger's writer could meet it. So an id is used once (protocol 10.2). A chain's name may be
used again; each chain has another creation token.

Leaves creating stores to the `StoreService` of the implementation.
"""

from dataclasses import replace
from random import Random

import pytest

from metadata.errors import NodeExistsError, NodeNotFoundError
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.chain_creation import NO_TOKEN
from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_ids import BLOCK_IDS, LedgerIdAllocator
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import chain_creation_path
from tests.contracts.store_service import StoreService
from tests.support.metadata.samples import A, B, D, open_ledger, token

NOW_MS = 1_700_000_000_000
CHOSEN = LedgerId(10**12)
NAME = "orders"


class OneLifeContract:
    """Tests to inherit in a class with a `service` fixture."""

    @pytest.mark.parametrize("was_chosen", [True, False])
    async def test_a_change_of_a_deleted_ledger_meets_no_other_one(
        self,
        service: StoreService,
        was_chosen: bool,
    ) -> None:
        one, other = await service.connect(), await service.connect()
        old = LedgerStore(one, Random(1), lambda: NOW_MS)
        new = LedgerStore(other, Random(2), lambda: NOW_MS)
        ledger_id = CHOSEN if was_chosen else await LedgerIdAllocator(one, Random(1)).allocate()
        ledger = open_ledger(ledger_id)
        version = await old.create(ledger, is_chosen=was_chosen)
        await new.delete(ledger_id)
        again = replace(ledger, creation_token=token(9), update_token=token(10))
        for is_chosen in (True, False) if was_chosen else (True,):
            with pytest.raises(NodeExistsError):
                await new.create(again, is_chosen=is_chosen)
        changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
        with pytest.raises(NodeNotFoundError):
            await old.compare_and_set(changed, version)

    async def test_an_allocated_id_is_never_allocated_again(self, service: StoreService) -> None:
        ids: list[LedgerId] = []
        for number in range(2):
            store = await service.connect()
            allocator = LedgerIdAllocator(store, Random(number))
            ids += [await allocator.allocate() for _ in range(BLOCK_IDS + 1)]
        assert len(set(ids)) == len(ids)

    async def test_a_chain_that_is_created_again_has_another_token(
        self, service: StoreService
    ) -> None:
        one, other = await service.connect(), await service.connect()
        chains = ChainStore(one, Random(1), lambda: NOW_MS)
        await chains.create(NAME)
        first = await chains.creation_token(NAME)
        assert (await other.get(chain_creation_path(NAME), fresh=True)).version == 0
        again = ChainStore(other, Random(2), lambda: NOW_MS)
        await again.delete(NAME)
        assert await chains.creation_token(NAME) == NO_TOKEN
        assert await other.children("/chains", fresh=True) == []
        await again.create(NAME)
        assert await chains.creation_token(NAME) not in (first, NO_TOKEN)
