"""A bookie starts only on its own disks (rules 2.1, 2.2, 2.4)."""

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from bookie.errors import (
    AlreadyFormattedError,
    BookieError,
    CookieDamagedError,
    CookieMismatchError,
    CookieMissingError,
)
from bookie.files.disk import Disk
from bookie.identity.identity import Identity, format_directories, prove_identity
from metadata.errors import ClusterNotFoundError
from metadata.ids import BookieId
from metadata.paths import INSTANCE
from metadata.registry.cluster import ensure_cluster
from metadata.registry.cookies import CookieStore
from metadata.store.interface import find
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.support.metadata.dumps import dump_of, restore


class Machine:
    """Disks of bookies, and the metadata service that they share."""

    def __init__(self) -> None:
        self.rng = random.Random(7)
        self.store = MemoryMetadataStore(MemoryMetadataServer())

    def disk(self, platter: Platter) -> Disk:
        return CrashableDisk(platter, self.rng, DiskFaults(delay_s_max=0))

    async def format(self, platter: Platter) -> BookieId:
        create = partial(ensure_cluster, rng=self.rng)
        return await format_directories(
            self.disk(platter), self.store, "bookie", self.rng, lambda: 5, create
        )

    async def start(self, platter: Platter) -> Identity:
        return await prove_identity(self.disk(platter), self.store)


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def test_a_formatted_bookie_starts_again_and_again(machine: Machine) -> None:
    platter = Platter()
    bookie_id = await machine.format(platter)
    assert bookie_id.startswith("bookie-")
    for starts in (1, 2, 3):
        identity = await machine.start(platter)
        assert (identity.bookie_id, identity.starts) == (bookie_id, starts)
        assert not identity.limbo_reason


async def test_two_formats_make_two_bookies(machine: Machine) -> None:
    assert await machine.format(Platter()) != await machine.format(Platter())
    assert len(await CookieStore(machine.store).list_bookie_ids()) == 2


async def test_formatting_creates_no_cluster(machine: Machine) -> None:
    """With a mistyped path of the metadata it would make a second one."""
    platter = Platter()
    disk = machine.disk(platter)
    with pytest.raises(ClusterNotFoundError, match="quire cluster init"):
        await format_directories(disk, machine.store, "bookie", machine.rng, lambda: 5)
    assert not platter.names
    assert await find(machine.store, INSTANCE) is None


async def test_only_empty_directories_are_formatted(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    with pytest.raises(AlreadyFormattedError, match="has a cookie already"):
        await machine.format(platter)
    for name in list(platter.names):
        if name.endswith("cookie"):
            del platter.names[name]
    await _touch(machine, platter, "log/00000001.log")
    with pytest.raises(AlreadyFormattedError, match="not empty"):
        await machine.format(platter)


async def test_an_empty_disk_is_no_bookie(machine: Machine) -> None:
    with pytest.raises(CookieMissingError, match="quire bookie format"):
        await machine.start(Platter())


async def test_a_wiped_bookie_is_refused_and_returns_as_another(machine: Machine) -> None:
    platter = Platter()
    bookie_id = await machine.format(platter)
    await machine.start(platter)
    platter.names.clear()
    with pytest.raises(CookieMissingError, match="is empty"):
        await machine.start(platter)
    assert await machine.format(platter) != bookie_id


@pytest.mark.parametrize("directory", ["identity", "log", "index"])
async def test_a_lost_directory_is_refused(machine: Machine, directory: str) -> None:
    platter = Platter()
    await machine.format(platter)
    for name in [name for name in platter.names if name.startswith(directory)]:
        del platter.names[name]
    with pytest.raises(CookieMissingError, match=directory) as caught:
        await machine.start(platter)
    assert "quire bookie format" in str(caught.value)


@pytest.mark.parametrize("directory", ["identity", "log", "index"])
async def test_swapped_directories_are_refused(machine: Machine, directory: str) -> None:
    first, second = Platter(), Platter()
    first_id, second_id = await machine.format(first), await machine.format(second)
    name = f"{directory}/cookie"
    first.names[name], second.names[name] = second.names[name], first.names[name]
    with pytest.raises(CookieMismatchError) as caught:
        await machine.start(first)
    assert first_id in str(caught.value)
    assert second_id in str(caught.value)
    assert {"bookie_id", "instance"} <= {
        difference.field for difference in caught.value.differences
    }


async def test_directories_of_one_bookie_are_not_exchanged(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    names = platter.names
    names["log/cookie"], names["index/cookie"] = names["index/cookie"], names["log/cookie"]
    with pytest.raises(CookieMismatchError, match="directory is index, expected log"):
        await machine.start(platter)


async def test_another_cluster_is_refused(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    other = Machine()
    with pytest.raises(CookieMissingError, match="does not know bookie"):
        await other.start(platter)


async def test_a_damaged_cookie_is_refused(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    platter.flip_bit("log/cookie", 400)
    with pytest.raises(CookieDamagedError, match="log/cookie"):
        await machine.start(platter)


async def test_old_copy_stays_in_limbo(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    await machine.start(platter)
    snapshot = copy.deepcopy(platter)
    await machine.start(platter)
    assert (await machine.start(snapshot)).limbo_reason
    assert (await machine.start(snapshot)).limbo_reason, "the next start must still know it"


async def test_one_old_directory_is_enough(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    old = copy.deepcopy(platter.names["index/cookie"])
    assert not (await machine.start(platter)).limbo_reason
    platter.names["index/cookie"] = old
    assert (await machine.start(platter)).limbo_reason


async def test_metadata_older_than_the_disk_is_refused(machine: Machine) -> None:
    platter = Platter()
    bookie_id = await machine.format(platter)
    record, _ = await CookieStore(machine.store).get(bookie_id)
    for _ in range(3):
        await machine.start(platter)
    restored = Machine()
    await restored.store.create("/instance", (await machine.store.get("/instance")).value)
    await CookieStore(restored.store).create(record)
    with pytest.raises(CookieMismatchError, match="restored from a backup"):
        await restored.start(platter)


async def test_a_restored_bookie_starts_and_counts_on(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    for _ in range(3):
        await machine.start(platter)
    after = Machine()
    await restore(after.store, await dump_of(machine.store))
    for starts in (4, 5):
        identity = await after.start(platter)
        assert (identity.starts, identity.limbo_reason) == (starts, "")
    again = Machine()
    await restore(again.store, await dump_of(after.store))
    assert (await again.start(platter)).starts == 6


async def test_starts_after_the_dump_are_counted_by_the_disks(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    await machine.start(platter)
    dump = await dump_of(machine.store)
    for _ in range(5):
        await machine.start(platter)
    snapshot = copy.deepcopy(platter)
    after = Machine()
    await restore(after.store, dump)
    identity = await after.start(platter)
    assert not identity.limbo_reason
    assert identity.starts > 6, "an older number could be that of a copy"
    assert (await after.start(platter)).starts == identity.starts + 1
    assert (await after.start(snapshot)).limbo_reason, "the first start wins"


async def test_one_directory_from_before_the_dump_is_a_copy(machine: Machine) -> None:
    platter = Platter()
    await machine.format(platter)
    await machine.start(platter)
    old = copy.deepcopy(platter.names["index/cookie"])
    dump = await dump_of(machine.store)
    for _ in range(5):
        await machine.start(platter)
    platter.names["index/cookie"] = old
    after = Machine()
    await restore(after.store, dump)
    assert (await after.start(platter)).limbo_reason


@pytest.mark.parametrize("crash_at", range(1, 10))
async def test_a_start_that_was_interrupted_before_the_restore(
    machine: Machine, crash_at: int
) -> None:
    platter = Platter()
    await machine.format(platter)
    dump = await dump_of(machine.store)
    for _ in range(3):
        await machine.start(platter)
    with pytest.raises(_PowerLossError):
        await prove_identity(
            cast("Disk", _Crashing(machine.disk(platter), crash_at)), machine.store
        )
    platter.crash(machine.rng)
    after = Machine()
    await restore(after.store, dump)
    assert not (await after.start(platter)).limbo_reason


async def test_a_copy_made_after_an_interrupted_start_is_old(machine: Machine) -> None:
    platter = Platter()
    bookie_id = await machine.format(platter)
    record, _ = await CookieStore(machine.store).get(bookie_id)
    await machine.start(platter)
    # As after an interrupted start: its number is on the disk and was not counted.
    interrupted = Machine()
    await interrupted.store.create("/instance", (await machine.store.get("/instance")).value)
    await CookieStore(interrupted.store).create(record)
    snapshot = copy.deepcopy(platter)
    assert not (await interrupted.start(platter)).limbo_reason
    assert (await interrupted.start(snapshot)).limbo_reason


@pytest.mark.parametrize("crash_at", range(1, 10))
@pytest.mark.parametrize("seed", range(4))
async def test_a_crash_at_any_write_leaves_a_bookie_that_starts(crash_at: int, seed: int) -> None:
    machine = Machine()
    machine.rng.seed(seed)
    platter = Platter()
    await machine.format(platter)
    disk = machine.disk(platter)
    with pytest.raises(_PowerLossError):
        await prove_identity(cast("Disk", _Crashing(disk, crash_at)), machine.store)
    platter.crash(machine.rng)
    identity = await machine.start(platter)
    assert not identity.limbo_reason, "an interrupted start is no old copy"


@pytest.mark.parametrize("second_at", range(1, 18))
@pytest.mark.parametrize("first_at", range(1, 10))
async def test_two_interrupted_starts_lose_nothing(first_at: int, second_at: int) -> None:
    machine = Machine()
    platter = Platter()
    await machine.format(platter)
    for crash_at in (first_at, second_at):
        disk = cast("Disk", _Crashing(machine.disk(platter), crash_at))
        try:
            identity = await prove_identity(disk, machine.store)
        except _PowerLossError:
            platter.crash(machine.rng)
        else:
            assert not identity.limbo_reason
    assert not (await machine.start(platter)).limbo_reason


class _PowerLossError(BookieError):
    pass


class _Crashing:
    """A disk that loses power before the n-th change."""

    def __init__(self, disk: Disk, count: int) -> None:
        self._disk = disk
        self._count = count

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in ("create", "rename", "unlink", "sync_directory"):
            self._count -= 1
            if not self._count:
                raise _PowerLossError
        found: Callable[..., object] = getattr(self._disk, name)
        return found


async def _touch(machine: Machine, platter: Platter, name: str) -> None:
    file = await machine.disk(platter).create(name)
    await file.commit(0, [b"x"])
    await file.close()
