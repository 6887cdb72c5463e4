"""Makes a bookie's identity when its directories are formatted, and proves it at every start.

Leaves the cookie's bytes and comparisons to `bookie.cookie`.

Invariants: a bookie's id is given to empty directories only, so an emptied disk is a new bookie;
nothing of a directory is read before its cookie was compared with the metadata service's; the count
of starts reaches the disks before it reaches the metadata service.

Source: protocol rules 2.1, 2.2, 2.4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bookie.cookie import (
    COOKIE_BYTES_MAX,
    COOKIE_NAME,
    DIRECTORIES,
    Cookie,
    cookies_of,
    decode_cookie,
    differences,
    encode_cookie,
    hash_directories,
    is_ahead,
    is_stale,
)
from bookie.disk import Disk
from bookie.server_errors import (
    AlreadyFormattedError,
    CookieMismatchError,
    CookieMissingError,
    Difference,
)
from metadata.cookies import INSTANCE_BYTES, CookieRecord, CookieStore, cluster_instance
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, Version
from metadata.store import MetadataStore

ID_RANDOM_BYTES: Final = 6
LIMBO_NAME: Final = "limbo"
HOLDER_NAME: Final = "holder"
_TEMPORARY_SUFFIX: Final = ".new"
_LOCK_NAME: Final = "lock"
_MARKS: Final = DIRECTORIES[0]

_FORMAT_COMMAND: Final = "quire bookie format"
_NEW_BOOKIE: Final = (
    "Put the right disks back; or, if this data is lost, give the bookie empty directories and run "
    f"`{_FORMAT_COMMAND}`: it joins as a new bookie, and the lost one's ledgers are repaired"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a bookie is, and whether its disks are what they were when it last ran."""

    bookie_id: BookieId
    cluster: bytes
    starts: int
    is_stale: bool
    """A directory is an old copy: what was stored since is lost, so the bookie is in limbo (rule
    2.4).
    """


async def format_directories(
    disk: Disk, store: MetadataStore, prefix: str, rng: Random, wall_clock_ms: Callable[[], int]
) -> BookieId:
    """Make a new bookie in empty, locked directories. Raises AlreadyFormattedError."""
    for directory in (*DIRECTORIES, "."):
        names = await disk.list_names(directory)
        unexpected = [name for name in names if name not in (_LOCK_NAME, *DIRECTORIES)]
        if COOKIE_NAME in unexpected:
            raise AlreadyFormattedError(directory, "already carries a cookie")
        if unexpected:
            raise AlreadyFormattedError(directory, f"is not empty: it holds {unexpected[0]}")
    cluster = await cluster_instance(store, rng)
    record = CookieRecord(
        BookieId(f"{prefix}-{rng.randbytes(ID_RANDOM_BYTES).hex()}"),
        rng.randbytes(INSTANCE_BYTES),
        wall_clock_ms(),
        len(DIRECTORIES),
        hash_directories(DIRECTORIES),
    )
    version = await CookieStore(store).create(record)
    # The first directory's cookie comes last: without it the format did not happen, and may be
    # repeated in directories emptied again.
    for cookie in reversed(cookies_of(record, cluster, version)):
        await _write_cookie(disk, cookie)
    return record.bookie_id


async def prove_identity(disk: Disk, store: MetadataStore) -> Identity:
    """Compare every directory's cookie with the metadata service's, and count this start.

    The directories must be locked. Raises CookieMissingError, CookieMismatchError,
    CookieDamagedError.
    """
    found = [await _read_cookie(disk, directory) for directory in DIRECTORIES]
    first = found[0]
    if first is None:
        raise _missing_first([each for each in found if each is not None])
    cookies = CookieStore(store)
    record, version = await _stored_record(cookies, first)
    cluster = await _stored_cluster(store, first)
    expected = cookies_of(record, cluster, version)
    present = [_checked(each, wanted) for each, wanted in zip(found, expected, strict=True)]
    if record.directories_hash != hash_directories(DIRECTORIES):
        difference = Difference("directories", ",".join(DIRECTORIES), "those it was formatted with")
        raise CookieMismatchError("the bookie", [difference], _NEW_BOOKIE)
    is_limbo = any(is_stale(cookie, version) for cookie in present)
    if is_limbo:
        # Before the count moves on: the next start would see nothing wrong.
        await write_mark(disk, LIMBO_NAME, b"a directory is an old copy\n")

    async def count_start(version: Version) -> Version:
        # Every cookie first: one that stayed behind a counted start is that of an old copy.
        for cookie in cookies_of(record, cluster, version + 1):
            await _write_cookie(disk, cookie)
        return await cookies.compare_and_set(record, version)

    if any(cookie.starts > version for cookie in present):
        # A start was cut off before it was counted. Its number is spent: a copy of these
        # directories made since then bears it.
        version = await count_start(version)
    version = await count_start(version)
    is_limbo = is_limbo or await read_mark(disk, LIMBO_NAME) is not None
    return Identity(record.bookie_id, cluster, version, is_limbo)


async def read_mark(disk: Disk, name: str) -> bytes | None:
    """Return what a small file of the identity holds; None if there is none."""
    return await _read_small(disk, _MARKS, name)


async def _read_small(disk: Disk, directory: str, name: str) -> bytes | None:
    if name not in await disk.list_names(directory):
        return None
    file = await disk.open(f"{directory}/{name}")
    try:
        return bytes(await file.read(0, COOKIE_BYTES_MAX))
    finally:
        await file.close()


async def write_mark(disk: Disk, name: str, data: bytes, directory: str = _MARKS) -> None:
    """Replace a small file, durably and at once."""
    path = f"{directory}/{name}"
    temporary = path + _TEMPORARY_SUFFIX
    if name + _TEMPORARY_SUFFIX in await disk.list_names(directory):
        await disk.unlink(temporary)
    file = await disk.create(temporary)
    try:
        await file.commit(0, [data])
    finally:
        await file.close()
    await disk.rename(temporary, path)
    await disk.sync_directory(directory)


async def remove_mark(disk: Disk, name: str) -> None:
    """Remove a small file of the identity, durably; one that is not there is removed."""
    if name in await disk.list_names(_MARKS):
        await disk.unlink(f"{_MARKS}/{name}")
        await disk.sync_directory(_MARKS)


def _missing_first(others: Sequence[Cookie]) -> CookieMissingError:
    if not others:
        repair = (
            f"Run `{_FORMAT_COMMAND}` to make a new bookie there; if it held one before, its disk "
            "is missing or was emptied: put it back; never format in place of what was not mounted"
        )
        return CookieMissingError("the data directory", "is empty: no bookie lives there", repair)
    what = f"has lost its cookie, that of bookie {others[0].bookie_id}"
    return CookieMissingError(f"directory {_MARKS}", what, _NEW_BOOKIE)


async def _stored_record(cookies: CookieStore, first: Cookie) -> tuple[CookieRecord, Version]:
    try:
        return await cookies.get(first.bookie_id)
    except NodeNotFoundError:
        raise CookieMissingError(
            "the metadata service",
            f"does not know bookie {first.bookie_id}",
            "Check that --metadata names the right cluster; a bookie that was decommissioned "
            f"starts again as a new one, in empty directories: `{_FORMAT_COMMAND}`",
        ) from None


async def _stored_cluster(store: MetadataStore, first: Cookie) -> bytes:
    # Read, never made: the bookie's cookie, seen before this, was stored after the instance.
    found = await cluster_instance(store, Random(first.cluster.hex()))
    if found != first.cluster:
        difference = Difference("cluster", first.cluster.hex(), found.hex())
        repair = "Check that --metadata names the right cluster"
        raise CookieMismatchError("the data directory", [difference], repair)
    return found


def _checked(found: Cookie | None, expected: Cookie) -> Cookie:
    where = f"directory {expected.directory}"
    if found is None:
        raise CookieMissingError(where, "is missing or has lost its cookie", _NEW_BOOKIE)
    different = differences(found, expected)
    if different:
        raise CookieMismatchError(where, different, _NEW_BOOKIE)
    if is_ahead(found, expected.starts):
        counted = Difference("starts", str(found.starts), f"at most {expected.starts + 1}")
        repair = "The metadata service is older than this disk: it was restored from a backup"
        raise CookieMismatchError(where, [counted], f"{repair}; restore its newest state")
    return found


async def _read_cookie(disk: Disk, directory: str) -> Cookie | None:
    data = await _read_small(disk, directory, COOKIE_NAME)
    return None if data is None else decode_cookie(data, f"{directory}/{COOKIE_NAME}")


async def _write_cookie(disk: Disk, cookie: Cookie) -> None:
    await write_mark(disk, COOKIE_NAME, encode_cookie(cookie), cookie.directory)
