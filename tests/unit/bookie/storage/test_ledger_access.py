"""The master key that a storage returns to repair."""

from random import Random

from bookie.storage.answers import AccessResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.opening import KnownDisk
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.disk import CrashableDisk
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, simulate

UNKNOWN_LEDGER = AccessResult(Status.NO_SUCH_LEDGER, None)


async def access(storage: BookieStorage, ledger_id: int) -> AccessResult:
    return await storage.reads.access_of(LedgerId(ledger_id))


def test_the_key_of_the_first_add_is_returned_also_after_a_restart() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await access(storage, 1) == UNKNOWN_LEDGER
        assert await add(storage, make_run(1, 0, 5)) is Status.OK
        assert await access(storage, 1) == AccessResult(Status.OK, KEY)
        storage = await bench.reopen(storage)
        assert await access(storage, 1) == AccessResult(Status.OK, KEY)
        assert await access(storage, 2) == UNKNOWN_LEDGER
        await storage.close()
        assert await access(storage, 1) == AccessResult(Status.CLOSING, None)

    simulate(scenario)


def test_a_fence_keeps_the_key_too_and_a_ledger_may_have_none() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert (await storage.fence(LedgerId(1), KEY)).status is Status.OK
        assert await access(storage, 1) == AccessResult(Status.OK, KEY)
        assert (await storage.fence(LedgerId(2), None)).status is Status.OK
        assert await access(storage, 2) == AccessResult(Status.OK, None)
        await storage.close()

    simulate(scenario)


def test_no_key_of_a_deleted_ledger_is_returned() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(1, 0, 5)) is Status.OK
        assert await storage.delete_ledger(LedgerId(1)) is Status.OK
        assert await access(storage, 1) == AccessResult(Status.DELETED, None)
        await storage.close()

    simulate(scenario)


def test_in_limbo_an_unknown_ledger_is_uncertain() -> None:
    async def scenario(bench: Bench) -> None:
        disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
        known = KnownDisk("a directory was lost")
        storage = await BookieStorage.open(disk, SMALL, rng=Random(1), known=known)
        assert await access(storage, 1) == AccessResult(Status.UNKNOWN, None)
        await storage.close()

    simulate(scenario)
