"""Makes a bookie's identity when its directories are formatted, and proves it at every start.

Leaves the cookie's bytes and comparisons to `bookie.identity.cookie`, looking for a living process
of the same bookie to `bookie.identity.original`, and comparing the end of the log to
`bookie.storage.opening`.

Invariants: a bookie's id is given to empty directories only, so an emptied disk is a new bookie;
nothing of a directory is read before its cookie was compared with the metadata service's; nothing
is written while another process is registered as this bookie, unless it is proved dead; the count
of starts reaches the disks before it reaches the metadata service.

Source: protocol rules 2.1, 2.2, 2.4, 2.6.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bookie.files.disk import Disk
from bookie.files.small_files import MARKS, read_mark, read_small, write_mark, write_small
from bookie.identity.anchors import are_same_files, make_anchors, read_anchors
from bookie.identity.cookie import (
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
from bookie.identity.original import WAIT_S_MIN, OriginalCheck
from bookie.server_errors import (
    AlreadyFormattedError,
    CookieMismatchError,
    CookieMissingError,
    Difference,
)
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, Version
from metadata.registry.cookies import INSTANCE_BYTES, CookieRecord, CookieStore, cluster_instance
from metadata.registry.positions import PositionStore, StoredPosition
from metadata.store.interface import MetadataStore

ID_RANDOM_BYTES: Final = 6
LIMBO_NAME: Final = "limbo"
_LOCK_NAME: Final = "lock"
_STALE: Final = "a directory is an old copy: it was made before the bookie last started"
_COPIED: Final = (
    "these files are a copy, and the bookie that they were copied from did not stop in order"
)

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
    limbo_reason: str
    """Why what was stored may be lost, so that the bookie is in limbo (rules 2.4, 2.6); empty while
    there is no reason.
    """
    position: StoredPosition
    """Where the log must end at least, and whose it was."""
    files: tuple[str, ...]
    """The identities of this bookie's anchors."""
    lock: str
    """The identity of the lock that is held."""
    dead_incarnation: bytes | None
    """Of a process that is proved dead and whose registration is still there."""

    @property
    def has_original_ended(self) -> bool:
        """Tell whether the process that recorded the position is proved to have ended."""
        record = self.position.record
        return record is None or record.is_orderly or self.dead_incarnation is not None

    @property
    def is_stale(self) -> bool:
        """Return whether something may be lost: a directory is an old copy."""
        return bool(self.limbo_reason)

    @property
    def recorded_end_lsn(self) -> int:
        """Everything below it was durable when the bookie last recorded its position."""
        return 0 if self.position.record is None else self.position.record.end_lsn


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
    await make_anchors(disk)
    # The first directory's cookie comes last: without it the format did not happen, and may be
    # repeated in directories emptied again.
    for cookie in reversed(cookies_of(record, cluster, version)):
        await _write_cookie(disk, cookie)
    return record.bookie_id


async def prove_identity(
    disk: Disk,
    store: MetadataStore,
    originals: OriginalCheck | None = None,
    before_writing: Callable[[], Awaitable[None]] | None = None,
) -> Identity:
    """Compare every directory's cookie with the metadata service's, make sure that no other process
    serves as this bookie, and count this start.

    The directories must be locked. `before_writing` is awaited once nothing forbids the start.
    Nothing is written when it raises CookieMissingError, CookieMismatchError, CookieDamagedError,
    OriginalLivesError or OriginalRegisteredError.
    """
    found = [await _read_cookie(disk, directory) for directory in DIRECTORIES]
    first = found[0]
    if first is None:
        raise _missing_first([each for each in found if each is not None])
    cookies = CookieStore(store)
    await _compared(store, found, first)
    lock = await disk.lock_identity()
    originals = originals or OriginalCheck(store, wait_s=WAIT_S_MIN, log=None)
    dead_incarnation = await originals.run(first.bookie_id, lock)
    # Again: the other process may have gone on until its session ended.
    record, version, cluster, present = await _compared(store, found, first)
    position = await PositionStore(store).get(first.bookie_id)
    reason = _limbo_reason(present, version, position, await read_anchors(disk))
    if before_writing is not None:
        await before_writing()
    if reason:
        # Before the count moves on: the next start would see nothing wrong.
        await write_mark(disk, LIMBO_NAME, reason.encode())

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
    marked = await read_mark(disk, LIMBO_NAME)
    return Identity(
        record.bookie_id,
        cluster,
        version,
        reason or ("" if marked is None else marked.decode(errors="replace").strip() or _STALE),
        position,
        await make_anchors(disk),
        lock,
        dead_incarnation,
    )


def _limbo_reason(
    present: Sequence[Cookie], version: Version, position: StoredPosition, files: Sequence[str]
) -> str:
    """Return why the directories may lack what the bookie stored; empty when they do not.

    The copy of a bookie that stopped in order is complete, if it is of its last stop: the count of
    starts tells.
    """
    if any(is_stale(cookie, version) for cookie in present):
        return _STALE
    record = position.record
    if record is None or record.is_orderly or are_same_files(record.files, files):
        return ""
    return _COPIED


async def _compared(
    store: MetadataStore, found: Sequence[Cookie | None], first: Cookie
) -> tuple[CookieRecord, Version, bytes, list[Cookie]]:
    """Compare the directories' cookies with the metadata service's, as it is now; return the
    stored record with its version, the cluster, and the cookies.
    """
    record, version = await _stored_record(CookieStore(store), first)
    cluster = await _stored_cluster(store, first)
    expected = cookies_of(record, cluster, version)
    present = [_checked(each, wanted) for each, wanted in zip(found, expected, strict=True)]
    if record.directories_hash != hash_directories(DIRECTORIES):
        difference = Difference("directories", ",".join(DIRECTORIES), "those it was formatted with")
        raise CookieMismatchError("the bookie", [difference], _NEW_BOOKIE)
    return record, version, cluster, present


def _missing_first(others: Sequence[Cookie]) -> CookieMissingError:
    if not others:
        repair = (
            f"Run `{_FORMAT_COMMAND}` to make a new bookie there; if it held one before, its disk "
            "is missing or was emptied: put it back; never format in place of what was not mounted"
        )
        return CookieMissingError("the data directory", "is empty: no bookie lives there", repair)
    what = f"has lost its cookie, that of bookie {others[0].bookie_id}"
    return CookieMissingError(f"directory {MARKS}", what, _NEW_BOOKIE)


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
    data = await read_small(disk, directory, COOKIE_NAME)
    return None if data is None else decode_cookie(data, f"{directory}/{COOKIE_NAME}")


async def _write_cookie(disk: Disk, cookie: Cookie) -> None:
    await write_small(disk, cookie.directory, COOKIE_NAME, encode_cookie(cookie))
