"""Nothing is removed after the metadata service was restored from a backup (10.5, 10.6)."""

import asyncio
import copy
import random
from dataclasses import replace

import pytest

from bookie.errors import FormatError
from bookie.identity.metadata_age import (
    MetadataAge,
    SeenMetadata,
    decode_seen,
    encode_seen,
    may_lack_starts,
)
from bookie.storage.writability import Reason, Writability
from metadata.errors import MetadataError
from metadata.ids import BookieId, Version
from metadata.paths import LEDGER_IDS, RESTORE
from metadata.registry.positions import NO_POSITION, PositionRecord, PositionStore
from metadata.restore.restore_record import (
    RESTORE_NODE,
    TOKEN_BYTES,
    RestoreRecord,
    RestoreState,
    accept_restore,
    record_older,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.number_blocks import pack_block
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.support.metadata.scripted_faults import ScriptedFaults

BOOKIE = BookieId("bookie-test")
RECORD = PositionRecord(b"r" * 16, 7, files=("1", "2", "3"), lock="")


class Bench:
    """A bookie's disk, and a metadata service that can be restored from a backup."""

    def __init__(self) -> None:
        self.service_faults = ScriptedFaults()
        self.server = MemoryMetadataServer(self.service_faults)
        self.store = MemoryMetadataStore(self.server)
        self.positions = PositionStore(self.store)
        self.platter = Platter()
        self.faults = DiskFaults(delay_s_max=0)
        self.rng = random.Random(2)
        self.writability = Writability(lambda: 0.0)

    async def start(self) -> MetadataAge:
        """Return the state that a new process reads."""
        self.writability = Writability(lambda: 0.0)
        disk = CrashableDisk(self.platter, random.Random(1), self.faults)
        age = MetadataAge(disk, self.store, self.rng, BOOKIE, self.writability)
        await age.restore()
        return age

    async def grow(self, *, ledger_ids: int) -> None:
        """Record a position, and assign ids up to `ledger_ids`."""
        version = (await self.positions.get(BOOKIE)).version
        await self.positions.put(BOOKIE, RECORD, version)
        value = pack_block(LEDGER_IDS, ledger_ids)
        if version == NO_POSITION:
            await self.store.create(LEDGER_IDS, value)
        else:
            stored = await self.store.get(LEDGER_IDS)
            await self.store.compare_and_set(LEDGER_IDS, value, stored.version)


async def test_service_that_only_grows_is_trusted() -> None:
    bench = Bench()
    age = await bench.start()
    for ledger_ids in (1_001, 2_001, 2_001):
        await bench.grow(ledger_ids=ledger_ids)
        assert await age.may_collect()
    assert not age.went_back
    await age.keep()
    again = await bench.start()
    assert await again.may_collect()


@pytest.mark.parametrize("restarts", [False, True])
async def test_restored_service_is_not_trusted_until_an_operator_accepts_it(
    *, restarts: bool
) -> None:
    bench = Bench()
    age = await bench.start()
    await bench.grow(ledger_ids=1_001)
    backup = copy.deepcopy(bench.server.tree)
    await bench.grow(ledger_ids=2_001)
    assert await age.may_collect()
    await age.keep()
    bench.server.tree = backup
    if restarts:
        age = await bench.start()
    assert not await age.may_collect()
    await bench.grow(ledger_ids=9_001)  # newer than ever before, with other ledgers
    await bench.grow(ledger_ids=9_001)
    assert not await age.may_collect()
    for _ in range(2):
        age = await bench.start()
        assert not await age.may_collect(), "a restart does not clear it"
        (condition,) = bench.writability.conditions()
        assert condition.reason is Reason.METADATA_OLD
        assert not condition.blocks_adds
    await age.accept()
    assert bench.writability.conditions() == ()
    assert await age.may_collect()
    assert await (await bench.start()).may_collect()


@pytest.mark.parametrize("what", ["position", "ledger ids"])
async def test_either_number_shows_an_older_service(what: str) -> None:
    bench = Bench()
    await bench.grow(ledger_ids=1_001)
    await bench.grow(ledger_ids=1_001)
    age = await bench.start()
    if what == "position":
        await bench.store.delete(f"/positions/{BOOKIE}", Version(1))
    else:
        stored = await bench.store.get(LEDGER_IDS)
        await bench.store.compare_and_set(LEDGER_IDS, pack_block(LEDGER_IDS, 501), stored.version)
    assert not await age.may_collect()
    assert ("position" if what == "position" else "ledger id") in age.went_back


async def test_recorded_version_counts_before_it_is_read_back() -> None:
    bench = Bench()
    age = await bench.start()
    await bench.grow(ledger_ids=1_001)
    age.note_recorded(Version(5))
    assert not await age.may_collect()


async def test_older_service_is_noticed_on_a_full_disk() -> None:
    bench = Bench()
    await bench.grow(ledger_ids=1_001)
    age = await bench.start()
    bench.faults.capacity_bytes = 0
    age.note_recorded(Version(4))
    assert not await age.may_collect()
    assert not await age.may_collect()
    bench.faults.capacity_bytes = 2**40
    assert not await (await bench.start()).may_collect(), "the service itself says it"


async def test_the_finding_is_durable_on_return() -> None:
    bench = Bench()
    await bench.grow(ledger_ids=1_001)
    age = await bench.start()
    age.note_recorded(Version(4))
    assert not await age.may_collect()
    bench.platter.crash(random.Random(3))
    assert (await bench.start()).went_back


@pytest.mark.parametrize("restarts", ["none", "on the older one", "on both"])
@pytest.mark.parametrize("writes", [1, 20])
async def test_collecting_goes_on_when_the_newest_state_returns(restarts: str, writes: int) -> None:
    bench = Bench()
    age = await bench.start()
    await bench.grow(ledger_ids=1_001)
    backup = copy.deepcopy(bench.server.tree)
    for _ in range(5):
        await bench.grow(ledger_ids=2_001)
        age.note_recorded((await bench.positions.get(BOOKIE)).version)
    assert await age.may_collect()
    await age.keep()
    newest, bench.server.tree = bench.server.tree, backup
    if restarts != "none":
        age = await bench.start()
    assert not await age.may_collect()
    for _ in range(writes):
        await bench.grow(ledger_ids=9_001)
        age.note_recorded((await bench.positions.get(BOOKIE)).version)
        assert not await age.may_collect(), "newer numbers, of another service"
    bench.server.tree = newest
    if restarts == "on both":
        age = await bench.start()
    assert await age.may_collect()
    assert bench.writability.conditions() == ()
    await age.keep()
    assert await (await bench.start()).may_collect()


async def test_a_bookie_learns_from_another_one_that_the_service_is_older() -> None:
    bench = Bench()
    await bench.grow(ledger_ids=1_001)
    age = await bench.start()
    await record_older(bench.store, b"t" * TOKEN_BYTES, b"")
    assert not await age.may_collect()
    await accept_restore(bench.store)
    assert await age.may_collect()


async def test_a_service_without_the_accepted_restore_is_another_one() -> None:
    bench = Bench()
    await bench.grow(ledger_ids=1_001)
    older = copy.deepcopy(bench.server.tree)
    await restore_service(bench, RestoreState.ACCEPTED)
    age = await bench.start()
    assert await age.may_collect()
    await age.keep()
    bench.server.tree = older
    for _ in range(3):
        await bench.grow(ledger_ids=99_001)
    assert not await age.may_collect()
    await age.accept()
    assert await age.may_collect()


async def test_an_older_service_without_its_record_is_never_trusted_by_its_numbers() -> None:
    bench = Bench()
    age = await bench.start()
    await bench.grow(ledger_ids=2_001)
    assert await age.may_collect()
    stored = await bench.store.get(LEDGER_IDS)
    await bench.store.compare_and_set(LEDGER_IDS, pack_block(LEDGER_IDS, 1), stored.version)
    bench.service_faults.acts = ["refused"]
    with pytest.raises(MetadataError):
        await age.may_collect()
    await bench.grow(ledger_ids=9_001)
    assert not await age.may_collect()


SEEN = SeenMetadata(Version(17), 3_001, "it went back: 3 and was 5", True, bytes(range(16)))


def test_the_lines_of_the_mark_in_their_order() -> None:
    assert encode_seen(SEEN).startswith(
        b"quire-seen 1\nposition-version 17\nledger-ids 3001\nwent-back it went back: 3 and was 5"
        b"\ntold-apart 1\nrestore 000102030405060708090a0b0c0d0e0f\ncrc32c "
    )


def test_the_mark_is_read_as_it_was_written() -> None:
    for seen in (
        SEEN,
        replace(SEEN, went_back="", is_told_apart=False),
        replace(SEEN, restore=b""),
    ):
        assert decode_seen(encode_seen(seen)) == seen


@pytest.mark.parametrize("damage", ["cut", "flipped", "newer", "no text"])
def test_a_damaged_mark_is_refused(damage: str) -> None:
    data = encode_seen(SeenMetadata(Version(17), 3_001))
    damaged = {
        "cut": data[:-3],
        "flipped": data.replace(b"17", b"18"),
        "newer": data.replace(b"quire-seen 1", b"quire-seen 2"),
        "no text": b"\xff" + data,
    }[damage]
    with pytest.raises(FormatError):
        decode_seen(damaged)


async def test_checks_at_the_same_time_agree() -> None:
    bench = Bench()
    await bench.grow(ledger_ids=1_001)
    age = await bench.start()
    assert all(await asyncio.gather(*[age.may_collect() for _ in range(5)]))


async def restore_service(bench: Bench, state: RestoreState) -> None:
    """Begin a new life of the service, as a restore does."""
    bench.server.tree = MemoryMetadataServer().tree
    record = RestoreRecord(b"t" * 16, state, 5, b"d" * 32)
    await bench.store.create(RESTORE, RESTORE_NODE.pack(record))
    await bench.grow(ledger_ids=9_001)


@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_is_removed_until_a_restore_is_accepted(*, restarts: bool) -> None:
    bench = Bench()
    age = await bench.start()
    for _ in range(3):
        await bench.grow(ledger_ids=1_001)
    assert await age.may_collect()
    await age.keep()
    await restore_service(bench, RestoreState.FINISHED)
    if restarts:
        age = await bench.start()
    for _ in range(5):
        await bench.grow(ledger_ids=9_001)
        assert not await age.may_collect()
    (condition,) = bench.writability.conditions()
    assert "quire metadata accept-restore" in condition.text
    await accept_restore(bench.store)
    if restarts:
        age = await bench.start()
    assert await age.may_collect()
    assert bench.writability.conditions() == ()
    await age.keep()
    assert await (await bench.start()).may_collect()


async def test_a_new_bookie_waits_too() -> None:
    bench = Bench()
    await restore_service(bench, RestoreState.FINISHED)
    age = await bench.start()
    assert not await age.may_collect(), "neither number shows it"
    await accept_restore(bench.store)
    assert await age.may_collect()


async def test_an_accepted_restore_does_not_excuse_a_service_that_goes_back_later() -> None:
    bench = Bench()
    await restore_service(bench, RestoreState.ACCEPTED)
    age = await bench.start()
    assert await age.may_collect()
    backup = copy.deepcopy(bench.server.tree)
    await bench.grow(ledger_ids=9_001)
    assert await age.may_collect()
    await age.keep()
    bench.server.tree = backup
    assert not await age.may_collect()
    assert not await (await bench.start()).may_collect()


async def test_an_operator_accepts_a_restore_for_one_bookie() -> None:
    bench = Bench()
    age = await bench.start()
    await bench.grow(ledger_ids=1_001)
    await restore_service(bench, RestoreState.FINISHED)
    assert not await age.may_collect()
    await age.accept()
    assert await age.may_collect()
    assert await (await bench.start()).may_collect()


async def test_a_bookie_knows_whether_the_metadata_may_lack_starts() -> None:
    bench = Bench()
    age = await bench.start()
    disk = CrashableDisk(bench.platter, random.Random(1), bench.faults)
    assert not await may_lack_starts(disk, bench.store)
    await restore_service(bench, RestoreState.FINISHED)
    assert await may_lack_starts(disk, bench.store)
    await age.accept()
    assert not await may_lack_starts(disk, bench.store)
