"""Local data is removed only after an agreed read allows it (10.1), and never returns (10.2)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bookie.identity.metadata_age import MetadataAge
from bookie.server.collector import RETRY_S, Collector, may_remove
from bookie.wire.messages import Status
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from metadata.paths import RESTORE
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.restore.restore_record import (
    RESTORE_NODE,
    RestoreRecord,
    RestoreState,
    accept_restore,
)
from quire.server.server_log import LOGGER
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.support.bookie.bookie_machine import Machine
from tests.support.bookie.running_server import BOOKIE, RunningServer
from tests.support.bookie.wire_client import batch_of
from tests.support.metadata.scripted_faults import ScriptedFaults, reach
from tests.until import until

ONE = LedgerId(1)
OTHER = BookieId("bookie-other")
TOKEN = UpdateToken(b"t" * 16)


class Collecting:
    """A collector on a server whose storage the test controls."""

    def __init__(self, served: RunningServer, machine: Machine) -> None:
        self.served = served
        self.machine = machine
        self.store = machine.store()
        self.ledgers = machine.ledgers(self.store)
        disk = CrashableDisk(Platter(), machine.rng, DiskFaults(delay_s_max=0))
        self.age = MetadataAge(disk, self.store, Random(1), BOOKIE, served.storage.writability)
        self.collector = Collector(
            served.context,
            self.store,
            self.ledgers,
            machine.rng,
            self.age,
            pass_interval_s=0.01,
            reads_per_s=10_000,
        )

    async def add(self, ledger_id: int) -> None:
        client = await self.served.client(ledger_id)
        assert await client.add(batch_of(ledger_id, 0)) is Status.OK
        await client.close()

    async def removes_one(self) -> bool:
        removed, refused = await self.collector.check([ONE])
        assert not refused
        return removed == [ONE]

    async def close_ledger(self, metadata: LedgerMetadata) -> None:
        closed = metadata.with_closed(EntryId(0), 7, TOKEN)
        _, version = await self.ledgers.get(metadata.ledger_id)
        await self.ledgers.compare_and_set(closed, version)


@pytest.fixture
async def collecting(served: RunningServer, tmp_path: Path) -> AsyncIterator[Collecting]:
    machine = Machine(tmp_path)
    made = Collecting(served, machine)
    record = CookieRecord(BOOKIE, bytes(16), 5, 3, bytes(32))
    await CookieStore(made.store).create(record)
    yield made
    await made.store.aclose()


def test_may_remove() -> None:
    metadata = _closed_metadata((OTHER,), ())
    assert may_remove(None, BOOKIE)
    assert may_remove(metadata, BOOKIE)
    assert not may_remove(metadata, OTHER)
    assert not may_remove(_closed_metadata((OTHER,), (BOOKIE,)), BOOKIE)
    for state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
        changed = replace(metadata, state=state, last_entry_id=None, length=None)
        assert not may_remove(changed, BOOKIE), "it may come to name any bookie"


def _closed_metadata(
    ensemble: tuple[BookieId, ...], incoming: tuple[BookieId, ...]
) -> LedgerMetadata:
    return LedgerMetadata(
        ONE,
        LedgerState.CLOSED,
        QuorumSpec(1, 1, 1),
        (Fragment(EntryId(0), ensemble, incoming),),
        DigestType.CRC32C,
        5,
        TOKEN,
        TOKEN,
        ClientId("client"),
        EntryId(0),
        7,
    )


async def test_a_named_ledger_stays(collecting: Collecting) -> None:
    metadata = await collecting.machine.create_ledger(1, BOOKIE)
    await collecting.add(1)
    assert not await collecting.removes_one()
    await collecting.close_ledger(metadata)
    assert not await collecting.removes_one()
    assert collecting.served.storage.ledger_ids() == [ONE]


async def test_closed_ledger_that_moved_away_is_removed(
    collecting: Collecting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    metadata = await collecting.machine.create_ledger(1, OTHER)
    await collecting.add(1)
    assert not await collecting.removes_one()
    await collecting.close_ledger(metadata)
    assert await collecting.removes_one()
    storage = collecting.served.storage
    assert storage.ledger_ids() == [*storage.released] == [ONE], "it may come back by a repair"
    assert not await collecting.removes_one(), "once is enough"
    assert [record.message for record in caplog.records] == ["surplus copy removed"]
    client = await collecting.served.client(1)
    assert await client.add(batch_of(1, 1)) is Status.FENCED
    assert await client.add(batch_of(1, 0), recovery=True) is Status.OK
    await client.close()


async def test_deleted_ledger_is_removed_and_its_adds_are_refused(collecting: Collecting) -> None:
    await collecting.machine.create_ledger(1, BOOKIE)
    await collecting.add(1)
    await collecting.ledgers.delete(ONE)
    assert await collecting.removes_one()
    client = await collecting.served.client(1)
    assert await client.add(batch_of(1, 1)) is Status.DELETED
    await client.close()


async def test_nothing_is_stored_between_the_second_read_and_the_removal(
    collecting: Collecting,
) -> None:
    await collecting.machine.create_ledger(1, BOOKIE)
    await collecting.add(1)
    await collecting.ledgers.delete(ONE)
    storage = collecting.served.storage
    storage.reads_wait.clear()
    removing = asyncio.create_task(collecting.removes_one())
    await until(lambda: storage.deletions_begun == 1)
    before, held = storage.add_count, collecting.served.context._held
    client = await collecting.served.client(1)
    late = client.send_add(batch_of(1, 1))
    await until(lambda: bool(held.get(ONE)) or storage.add_count > before)
    assert storage.add_count == before
    storage.reads_wait.set()
    assert await removing
    assert await client.ack(late) is Status.DELETED
    await client.close()


async def test_a_ledger_that_a_replaced_leader_does_not_know_stays(
    collecting: Collecting,
) -> None:
    await collecting.machine.create_ledger(1, BOOKIE)
    await collecting.add(1)
    collecting.machine.server.faults = faults = ScriptedFaults(reach("/ledgers/"))
    faults.missed = faults.missed_by_fresh = 1_000
    with pytest.raises(NodeNotFoundError):
        await collecting.ledgers.get(ONE, fresh=True)
    assert not await collecting.removes_one()
    assert collecting.served.storage.ledger_ids() == [ONE]


async def test_an_emptied_metadata_service_removes_nothing(collecting: Collecting) -> None:
    await collecting.add(1)
    _, version = await CookieStore(collecting.store).get(BOOKIE)
    await CookieStore(collecting.store).delete(BOOKIE, version)
    with pytest.raises(Exception, match="does not exist"):
        await collecting.removes_one()
    assert collecting.served.storage.ledger_ids() == [ONE]


async def test_a_restored_metadata_service_removes_nothing(collecting: Collecting) -> None:
    await collecting.add(1)
    collecting.age.note_recorded(Version(9))
    assert not await collecting.removes_one()
    assert collecting.served.storage.ledger_ids() == [ONE]
    await collecting.age.accept()
    assert await collecting.removes_one()


async def test_nothing_is_removed_when_the_service_is_restored_during_the_check(
    collecting: Collecting,
) -> None:
    await collecting.add(1)
    collecting.age.note_recorded(Version(9))  # it recorded a position that is missing now
    assert not await collecting.removes_one()
    assert collecting.served.storage.ledger_ids() == [ONE]


async def test_feed_and_full_pass_find_removable_ledgers(collecting: Collecting) -> None:
    for ledger_id in (1, 2, 3):
        await collecting.machine.create_ledger(ledger_id, BOOKIE)
        await collecting.add(ledger_id)
    await collecting.add(4)  # its metadata never existed, or its deletion has expired from the feed
    running = asyncio.create_task(collecting.collector.run())
    await until(lambda: LedgerId(4) not in collecting.served.storage.ledger_ids())
    await collecting.ledgers.delete(LedgerId(2))
    await until(lambda: collecting.served.storage.ledger_ids() == [1, 3])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_storage_hears_of_deletions_of_ledgers_that_it_does_not_hold(
    collecting: Collecting,
) -> None:
    """The deletion came before the bookie had anything of the ledger, or before it started."""
    for ledger_id in (1, 2, 3):
        await collecting.machine.create_ledger(ledger_id, BOOKIE)
    await collecting.ledgers.delete(LedgerId(1))
    running = asyncio.create_task(collecting.collector.run())
    await until(lambda: collecting.served.storage.feed_names(1))
    await collecting.ledgers.delete(LedgerId(2))
    await until(lambda: collecting.served.storage.feed_names(2))
    assert not collecting.served.storage.feed_names(3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_deletion_does_not_wait_for_the_end_of_a_pass(collecting: Collecting) -> None:
    collecting.collector._reads_per_s = 1
    now = asyncio.get_running_loop().time
    ledger_ids = [LedgerId(number) for number in range(1, 201)]
    for ledger_id in ledger_ids:
        await collecting.machine.create_ledger(ledger_id, BOOKIE)
        await collecting.add(ledger_id)
    running = asyncio.create_task(collecting.collector.run())
    await asyncio.sleep(5.0)  # a pass has begun
    for ledger_id in ledger_ids[-3:]:  # a pass comes to the newest last
        began_s = now()
        await collecting.ledgers.delete(ledger_id)
        while ledger_id in collecting.served.storage.ledger_ids():
            assert now() - began_s < 5.0
            await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_ledgers_are_removed_together_after_one_agreed_read(collecting: Collecting) -> None:
    ledger_ids = [LedgerId(number) for number in range(1, 101)]
    for ledger_id in ledger_ids:
        await collecting.add(ledger_id)
    collecting.machine.server.faults = faults = ScriptedFaults(reach("/ledgers/"))
    assert await collecting.collector.check(ledger_ids) == (ledger_ids, [])
    assert sum(call.is_agreed for call in faults.calls) == 1
    assert collecting.served.storage.ledger_ids() == []


@pytest.mark.parametrize("fault", ["metadata", "storage"])
async def test_a_deletion_that_fails_is_tried_again_soon(
    collecting: Collecting, fault: str
) -> None:
    await collecting.machine.create_ledger(1, BOOKIE)
    await collecting.add(1)
    running = asyncio.create_task(collecting.collector.run())
    collecting.collector._pass_interval_s = 10_000.0
    await asyncio.sleep(1.0)
    record, version = await CookieStore(collecting.store).get(BOOKIE)
    if fault == "metadata":
        await CookieStore(collecting.store).delete(BOOKIE, version)
    else:
        collecting.served.storage.deletion_status = Status.READ_ONLY
    await collecting.ledgers.delete(ONE)
    await asyncio.sleep(30.0)
    assert collecting.served.storage.ledger_ids() == [ONE]
    if fault == "metadata":
        await CookieStore(collecting.store).create(record)
    else:
        collecting.served.storage.deletion_status = Status.OK
    await asyncio.sleep(2 * RETRY_S)
    assert collecting.served.storage.ledger_ids() == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_nothing_is_removed_before_a_restore_is_accepted(collecting: Collecting) -> None:
    await collecting.add(1)
    record = RestoreRecord(b"t" * 16, RestoreState.FINISHED, 5, b"d" * 32)
    await collecting.store.create(RESTORE, RESTORE_NODE.pack(record))
    assert not await collecting.removes_one()
    assert collecting.served.storage.ledger_ids() == [ONE]
    await accept_restore(collecting.store)
    await collecting.age.may_collect()
    assert await collecting.removes_one()
