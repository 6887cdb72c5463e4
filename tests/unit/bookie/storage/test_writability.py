"""The conditions that make a bookie read-only, alone and in a storage."""

import asyncio

import pytest

from bookie.errors import DiskFullError
from bookie.identity.own_lifecycle import OperatorSwitch
from bookie.index.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO
from bookie.storage.writability import (
    ADVICE,
    BLOCKS_NO_ADDS,
    ConditionChange,
    Reason,
    Writability,
)
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.disk import CrashableDisk
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, Bench, add, read, simulate
from tests.until import until


class Clock:
    """A clock that a test moves."""

    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def watched() -> tuple[Writability, Clock, list[tuple[str, bool, float | None]]]:
    clock, seen = Clock(), list[tuple[str, bool, float | None]]()
    writability = Writability(clock)

    def note(change: ConditionChange) -> None:
        seen.append((change.condition.reason.value, writability.is_writable, change.lasted_s))

    writability.on_change(note)
    return writability, clock, seen


def test_each_change_is_reported_once_and_its_end_with_its_duration() -> None:
    writability, clock, seen = watched()
    writability.begin(Reason.DISK_HIGH_MARK, "96 %")
    clock.now_s += 3
    writability.begin(Reason.DISK_HIGH_MARK, "97 %")
    clock.now_s += 4
    assert [condition.text for condition in writability.conditions()] == ["97 %"]
    writability.end(Reason.DISK_HIGH_MARK)
    writability.end(Reason.DISK_HIGH_MARK)
    assert seen == [("disk-high-mark", False, None), ("disk-high-mark", True, 7.0)]


def test_a_bookie_is_writable_only_when_the_last_reason_has_ended() -> None:
    writability, _, seen = watched()
    writability.set_by_operator(is_read_only=True)
    writability.begin(Reason.DISK_FULL, "no space left", where="log")
    writability.begin(Reason.DISK_FULL, "no space left", where="index")
    writability.set_by_operator(is_read_only=False)
    writability.end(Reason.DISK_FULL, where="log")
    assert not writability.is_writable
    assert writability.has(Reason.DISK_FULL)
    assert [condition.where for condition in writability.conditions()] == ["index"]
    writability.end(Reason.DISK_FULL, where="index")
    assert writability.is_writable
    assert [is_writable for _, is_writable, _ in seen] == [False] * 5 + [True]


def test_limbo_alone_leaves_a_bookie_writable_and_every_reason_has_advice() -> None:
    writability, clock, _ = watched()
    writability.begin(Reason.LIMBO, "a record is damaged")
    clock.now_s += 2
    assert writability.is_writable
    (told,) = writability.report()
    assert (told["reason"], told["blocks_adds"], told["lasts_s"]) == ("limbo", False, 2.0)
    assert list(ADVICE) == list(Reason)


def test_a_reason_may_turn_writers_away_before_it_blocks_adds() -> None:
    writability, clock, seen = watched()
    writability.begin(Reason.DRAINING, "new disks", still_accepts=True)
    assert (writability.is_writable, writability.is_offered) == (True, False)
    clock.now_s += 3
    writability.begin(Reason.DRAINING, "new disks")
    assert (writability.is_writable, writability.is_offered) == (False, False)
    (condition,) = writability.conditions()
    assert condition.since_s == 5.0
    writability.begin(Reason.DRAINING, "other words")
    writability.end(Reason.DRAINING)
    assert (writability.is_writable, writability.is_offered) == (True, True)
    assert seen == [("draining", True, None), ("draining", False, None), ("draining", True, 3.0)]


def test_only_a_drained_bookie_refuses_recovery_adds() -> None:
    for reason in Reason:
        writability, _, _ = watched()
        writability.begin(reason, "why")
        assert writability.takes_recovery_adds is (reason is not Reason.DRAINED)
        assert writability.is_offered is (reason in BLOCKS_NO_ADDS)


def test_a_drained_storage_refuses_all_adds_and_fences_and_reads_continue() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 5)) is Status.OK
        storage.writability.begin(Reason.DRAINED, "an operator drained it")
        assert await add(storage, make_run(7, 5, 1)) is Status.READ_ONLY
        assert await add(storage, make_run(7, 5, 1), recovery=True) is Status.READ_ONLY
        assert await add(storage, make_run(8, 0, 1), recovery=True) is Status.READ_ONLY
        snapshot = await storage.fence(LedgerId(7), KEY)
        assert (snapshot.status, snapshot.highest_entry_id) == (Status.OK, 4)
        assert (await read(storage, 7, 0, 4)).next_entry_id == 5
        assert not storage.is_offered
        storage.writability.end(Reason.DRAINED)
        assert await add(storage, make_run(7, 5, 1), recovery=True) is Status.OK
        await storage.close()

    simulate(main)


def test_a_full_disk_is_a_reason_until_it_is_below_the_low_mark() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 1, size=1_950)) is Status.OK
        bench.faults.capacity_bytes = 2_000
        running = asyncio.create_task(storage.background())
        await until(lambda: not storage.is_writable)
        (condition,) = storage.writability.conditions()
        assert condition.reason is Reason.DISK_HIGH_MARK
        assert "bytes are free" in condition.text
        assert await add(storage, make_run(7, 0, 1)) is Status.READ_ONLY
        bench.faults.capacity_bytes = 2**40
        await until(lambda: storage.is_writable)
        assert storage.writability.conditions() == ()
        running.cancel()

    simulate(main)


def test_limbo_that_is_stored_is_a_reason_again_after_a_restart() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 1)) is Status.OK
        await storage.checkpoint()
        await storage._index.set_flags(FLAG_LIMBO | FLAG_FENCES_LOST)
        storage = await bench.reopen(storage)
        reasons = [condition.reason for condition in storage.writability.conditions()]
        assert reasons == [Reason.LIMBO, Reason.FENCES_LOST]
        assert not storage.is_writable
        storage.writability.explain_loss("the directory is an old copy")
        texts = [condition.text for condition in storage.writability.conditions()]
        assert texts == ["the directory is an old copy"] * 2

    simulate(main)


def test_a_switch_that_was_answered_survives_a_loss_of_power() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for is_read_only in (True, False):
            disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
            await OperatorSwitch(disk, storage.writability).switch(is_read_only=is_read_only)
            assert storage.is_writable is not is_read_only
            bench.platter.crash(bench.rng)
            after = Writability(lambda: 0.0)
            disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
            await OperatorSwitch(disk, after).restore()
            assert after.is_writable is not is_read_only

    simulate(main)


def test_a_switch_that_cannot_be_stored_changes_nothing() -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = 0
        disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
        writability = Writability(lambda: 0.0)
        with pytest.raises(DiskFullError):
            await OperatorSwitch(disk, writability).switch(is_read_only=True)
        assert writability.is_writable

    simulate(main)
