"""The store survives error codes that kazoo has no class for, and answers that it cannot read."""

from random import Random

import pytest

from metadata.errors import OutcomeUnknownError, StoreUnavailableError
from metadata.ids import EntryId, Version
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.interface import CompareAndSet, MetadataStore, SessionState
from tests.support.metadata.samples import A, B, D, open_ledger, token
from tests.support.metadata.scripted_zookeeper import ScriptedZooKeeper

NEW_CODE = -999
"""An error of a later release of ZooKeeper."""
SYSTEM_ERROR = -1
ERRORS = [NEW_CODE, SYSTEM_ERROR]


@pytest.mark.parametrize("code", ERRORS)
async def test_the_outcome_of_a_write_is_unknown(
    zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore, code: int
) -> None:
    await zookeeper_store.create("/a", b"0")
    writes = {
        "set": zookeeper_store.compare_and_set("/a", b"1", Version(0)),
        "multi": zookeeper_store.multi([CompareAndSet("/a", b"1", Version(0))]),
        "delete": zookeeper_store.delete("/a", Version(0)),
        "create": zookeeper_store.create("/b", b""),
    }
    for name, write in writes.items():
        zookeeper.errors[name] = [code]
        with pytest.raises(OutcomeUnknownError):
            await write
    assert await zookeeper_store.compare_and_set("/a", b"1", Version(0)) == 1
    assert zookeeper_store.session_state is SessionState.CONNECTED


@pytest.mark.parametrize("code", ERRORS)
async def test_a_read_has_no_answer(
    zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore, code: int
) -> None:
    await zookeeper_store.create("/a", b"0")
    for name, fresh in (("get", False), ("sync", True), ("children", False)):
        zookeeper.errors[name] = [code]
        with pytest.raises(StoreUnavailableError):
            await (
                zookeeper_store.children("/")
                if name == "children"
                else zookeeper_store.get("/a", fresh=fresh)
            )
    assert (await zookeeper_store.get("/a", fresh=True)).value == b"0"


async def test_an_answer_that_cannot_be_read_is_as_a_lost_connection(
    zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    await zookeeper_store.create("/a", b"0")
    zookeeper.garbled = ["set", "get"]
    with pytest.raises(OutcomeUnknownError):
        await zookeeper_store.compare_and_set("/a", b"1", Version(0))
    with pytest.raises(StoreUnavailableError):
        await zookeeper_store.get("/a")
    assert (await zookeeper_store.get("/a", fresh=True)).value == b"0"


@pytest.mark.parametrize("code", ERRORS)
async def test_a_change_of_a_ledger_is_decided(
    zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore, code: int
) -> None:
    ledgers = LedgerStore(zookeeper_store, Random(7), lambda: 5)
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    zookeeper.errors = {"set": [code, code], "get": [code]}
    assert await ledgers.compare_and_set(changed, version) == version + 1
    assert await ledgers.get(ledger.ledger_id, fresh=True) == (changed, version + 1)
