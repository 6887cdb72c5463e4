"""Creation of a bookie's identity when its directories are formatted, its proof at every start, and
the watch of the directories of a running bookie.

Leaves the cookie's bytes and comparison to `bookie.identity.cookie`, the search for a running
process of the same bookie to `bookie.identity.original`, and the comparison of the log's end to
`bookie.storage.opening`.

Format: an anchor is a file in each of a bookie's directories. Its identity reveals a copy, and its
absence that a directory is gone. It holds one line of text, which is not read.

Invariants: only empty directories get a bookie id, so an emptied disk is a new bookie; no data is
read from a directory before its cookie is compared with the metadata service's; no file is written
while another process is registered as this bookie, unless it is proved dead; the count of starts is
written to the disks before it is written to the metadata service; the first start after a restore
of the metadata service counts on from the disks. An anchor is never written again; a start makes
one that is missing.

Source: protocol rules 2.1, 2.2, 2.4, 2.6-2.9, 10.6.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bookie.errors import (
    AlreadyFormattedError,
    CookieMismatchError,
    CookieMissingError,
    Difference,
    DirectoryLostError,
    DiskFullError,
)
from bookie.files.disk import (
    MARKS,
    SMALL_BYTES_MAX,
    Disk,
    read_mark,
    read_small,
    remove_mark,
    write_mark,
    write_small,
)
from bookie.files.disk_calls import is_same_file
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
    starts_after_restore,
)
from bookie.identity.metadata_age import may_lack_starts
from bookie.identity.original import WAIT_S_MIN, OriginalCheck
from bookie.identity.own_lifecycle import refuse_removed
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, Version
from metadata.registry.cluster import INSTANCE_BYTES, require_cluster
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.registry.positions import PositionStore, StoredPosition
from metadata.store.interface import MetadataStore

ANCHOR_NAME: Final = "anchor"
_CONTENT: Final = b"quire-anchor 1\n"
_MISSING: Final = ""
CHECK_INTERVAL_S: Final = 5.0


async def read_anchors(disk: Disk) -> tuple[str, ...]:
    """Return the identity of each directory's anchor; an empty text for a missing one."""
    return tuple([await _identity_in(disk, directory) for directory in DIRECTORIES])


async def make_anchors(disk: Disk) -> tuple[str, ...]:
    """Create the missing anchors, durably; return the identity of each."""
    for directory in DIRECTORIES:
        if ANCHOR_NAME not in await disk.list_names(directory):
            await write_small(disk, directory, ANCHOR_NAME, _CONTENT)
    return await read_anchors(disk)


def are_same_files(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two lists of identities are of the same files."""
    return len(one) == len(other) and all(
        _MISSING not in (a, b) and is_same_file(a, b) for a, b in zip(one, other, strict=True)
    )


async def _identity_in(disk: Disk, directory: str) -> str:
    try:
        return await disk.file_identity(f"{directory}/{ANCHOR_NAME}")
    except FileNotFoundError:
        return _MISSING


class AnchorWatch:
    """Watch of a running bookie's anchors: its directories may be removed, replaced or unmounted.

    Invariant: at most CHECK_INTERVAL_S after an anchor is gone, and the time of one check, the
    bookie answers nothing any more. Without the watch it would serve from files that have no name,
    which are gone when it ends, and confirm entries in them.
    """

    def __init__(
        self, disk: Disk, files: Sequence[str], on_lost: Callable[[DirectoryLostError], None]
    ) -> None:
        """`files` are the anchors' identities at the start. `on_lost` is called once."""
        self._disk = disk
        self._files = files
        self._on_lost = on_lost

    async def run(self) -> None:
        """Check until an anchor is gone. Raises DiskFailedError."""
        while True:
            files = await read_anchors(self._disk)
            if not are_same_files(self._files, files):
                self._on_lost(DirectoryLostError(self._changed(files)))
                return
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _changed(self, files: Sequence[str]) -> list[str]:
        pairs = zip(DIRECTORIES, self._files, files, strict=True)
        return [name for name, one, other in pairs if not are_same_files([one], [other])]


ID_RANDOM_BYTES: Final = 6
LIMBO_NAME: Final = "limbo"
"""Mark with the reason of a limbo that the storage has not stored yet."""
LIMBO_REASON_NAME: Final = "limbo-reason"
"""Mark with the reason of the limbo that lasts: one line of text, UTF-8. It is missing if it found
no room on a full disk, or if the start that found the loss was interrupted.
"""
UNKNOWN_REASON: Final = "an earlier start found a loss of data and could not store the reason"
_LOCK_NAME: Final = "lock"
_STALE: Final = "a directory is an old copy: it was made before the bookie last started"
_COPIED: Final = (
    "these files are a copy, and the bookie from which they were copied did not stop cleanly"
)
_FORMAT_COMMAND: Final = "quire bookie format"
_NEW_BOOKIE: Final = (
    "Put the right disks back; or, if this data is lost, give the bookie empty directories and run "
    f"`{_FORMAT_COMMAND}`: it joins as a new bookie, and the lost bookie's ledgers are repaired"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a bookie, and whether its disks are unchanged since it last ran."""

    bookie_id: BookieId
    cluster: bytes
    starts: int
    limbo_reason: str
    """Reason why stored data may be lost, so that the bookie is in limbo (rules 2.4, 2.6); empty
    when there is none.
    """
    position: StoredPosition
    """Recorded position: the log must reach it, and it names the process that recorded it."""
    files: tuple[str, ...]
    """Identities of this bookie's anchors."""
    lock: str
    """Identity of the held lock."""
    dead_incarnation: bytes | None
    """Incarnation of a process that is proved dead and is still registered; else None."""

    @property
    def has_original_ended(self) -> bool:
        """Whether the process that recorded the position is proved to have ended."""
        record = self.position.record
        return record is None or record.is_orderly or self.dead_incarnation is not None

    @property
    def recorded_end_lsn(self) -> int:
        """LSN below which everything was durable when the bookie last recorded its position."""
        return 0 if self.position.record is None else self.position.record.end_lsn


async def format_directories(
    disk: Disk,
    store: MetadataStore,
    prefix: str,
    rng: Random,
    wall_clock_ms: Callable[[], int],
    find_cluster: Callable[[MetadataStore], Awaitable[bytes]] = require_cluster,
) -> BookieId:
    """Create a new bookie of the cluster in empty, locked directories. Raises
    AlreadyFormattedError, and ClusterNotFoundError where no cluster was created.
    """
    for directory in (*DIRECTORIES, "."):
        names = await disk.list_names(directory)
        unexpected = [name for name in names if name not in (_LOCK_NAME, *DIRECTORIES)]
        if COOKIE_NAME in unexpected:
            raise AlreadyFormattedError(directory, "has a cookie already: a bookie is there")
        if unexpected:
            raise AlreadyFormattedError(directory, f"is not empty: it contains {unexpected[0]}")
    cluster = await find_cluster(store)
    record = CookieRecord(
        BookieId(f"{prefix}-{rng.randbytes(ID_RANDOM_BYTES).hex()}"),
        rng.randbytes(INSTANCE_BYTES),
        wall_clock_ms(),
        len(DIRECTORIES),
        hash_directories(DIRECTORIES),
    )
    version = await CookieStore(store).create(record)
    await make_anchors(disk)
    # The first directory's cookie is written last: without it the directories do not count as
    # formatted. After a crash, empty them and format again.
    for cookie in reversed(cookies_of(record, cluster, version)):
        await _write_cookie(disk, cookie)
    return record.bookie_id


async def prove_identity(
    disk: Disk,
    store: MetadataStore,
    originals: OriginalCheck | None = None,
    before_writing: Callable[[], Awaitable[None]] | None = None,
) -> Identity:
    """Compare every directory's cookie with the metadata service's, check that no other process
    serves as this bookie, and count this start.

    The directories must be locked. `before_writing` is awaited after every check has passed.
    Nothing is written when this raises BookieRemovedError, CookieMissingError, CookieMismatchError,
    CookieDamagedError, OriginalLivesError or OriginalRegisteredError.
    """
    stored = [await _read_cookie(disk, directory) for directory in DIRECTORIES]
    first = stored[0]
    if first is None:
        raise _missing_first([kept for kept in stored if kept is not None])
    await refuse_removed(store, first.bookie_id)
    cookies = CookieStore(store)
    await _compared(disk, store, stored, first)
    lock = await disk.lock_identity()
    originals = originals or OriginalCheck(store, wait_s=WAIT_S_MIN, log=None)
    dead_incarnation = await originals.run(first.bookie_id, lock)
    # Compare again: the other process may have served until its session ended.
    record, version, cluster, present = await _compared(disk, store, stored, first)
    starts = record.starts_at(version)
    position = await PositionStore(store).get(first.bookie_id)
    reason = _limbo_reason(present, starts, position, await read_anchors(disk))
    if before_writing is not None:
        await before_writing()
    if reason:
        # Before the start is counted: otherwise the next start would not see the reason.
        await write_mark(disk, LIMBO_NAME, reason.encode())

    async def count_start(version: Version) -> Version:
        # Every cookie before the count: a cookie below the count is from an old copy.
        for cookie in cookies_of(record, cluster, record.starts_at(version) + 1):
            await _write_cookie(disk, cookie)
        return await cookies.compare_and_set(record, version)

    if any(cookie.starts > starts for cookie in present):
        # A start was interrupted before it was counted. Its number is not used again: a copy of
        # these directories made since then may have it.
        version = await count_start(version)
    version = await count_start(version)
    marked = await read_mark(disk, LIMBO_NAME)
    return Identity(
        record.bookie_id,
        cluster,
        record.starts_at(version),
        reason or ("" if marked is None else marked.decode(errors="replace").strip() or _STALE),
        position,
        await make_anchors(disk),
        lock,
        dead_incarnation,
    )


async def keep_limbo_reason(disk: Disk, cause: str, *, is_limbo: bool) -> str:
    """Store the reason of a loss that this start found, durably. Return the reason of a storage in
    limbo, else an empty text.
    """
    if not is_limbo:
        await remove_mark(disk, LIMBO_REASON_NAME)
        return ""
    if cause:
        with contextlib.suppress(DiskFullError):
            await write_mark(disk, LIMBO_REASON_NAME, cause.encode()[: SMALL_BYTES_MAX - 1] + b"\n")
        return cause
    kept = await read_mark(disk, LIMBO_REASON_NAME)
    return UNKNOWN_REASON if kept is None else kept.decode(errors="replace").strip()


def _limbo_reason(
    present: Sequence[Cookie], starts: int, position: StoredPosition, files: Sequence[str]
) -> str:
    """Return why the directories may lack stored data; empty when they do not.

    A copy of a bookie that stopped cleanly is complete if it was made after the last stop: the
    count of starts shows that.
    """
    if any(is_stale(cookie, starts) for cookie in present):
        return _STALE
    record = position.record
    if record is None or record.is_orderly or are_same_files(record.files, files):
        return ""
    return _COPIED


async def _compared(
    disk: Disk, store: MetadataStore, cookies: Sequence[Cookie | None], first: Cookie
) -> tuple[CookieRecord, Version, bytes, list[Cookie]]:
    """Compare the directories' cookies with the current ones of the metadata service. Return the
    stored record with its version, the cluster, and the directories' cookies. The record counts the
    starts that a restored metadata service does not know.
    """
    record, version = await _stored_record(CookieStore(store), first)
    cluster = await _stored_cluster(store, first)
    if await may_lack_starts(disk, store):
        counted = [cookie.starts for cookie in cookies if cookie is not None]
        record = record.counted_at(
            starts_after_restore(record.starts_at(version), counted), version
        )
    expected = cookies_of(record, cluster, record.starts_at(version))
    present = [_checked(cookie, wanted) for cookie, wanted in zip(cookies, expected, strict=True)]
    if record.directories_hash != hash_directories(DIRECTORIES):
        difference = Difference("directories", ",".join(DIRECTORIES), "those at formatting")
        raise CookieMismatchError("the bookie", [difference], _NEW_BOOKIE)
    return record, version, cluster, present


def _missing_first(others: Sequence[Cookie]) -> CookieMissingError:
    if not others:
        repair = (
            f"Run `{_FORMAT_COMMAND}` to make a new bookie there. If a bookie was there before, "
            "its disk is not mounted or was emptied: put it back, and do not format the mount point"
        )
        return CookieMissingError("the data directory", "is empty: it holds no bookie", repair)
    what = f"has lost its cookie, that of bookie {others[0].bookie_id}"
    return CookieMissingError(f"directory {MARKS}", what, _NEW_BOOKIE)


async def _stored_record(cookies: CookieStore, first: Cookie) -> tuple[CookieRecord, Version]:
    try:
        return await cookies.get(first.bookie_id)
    except NodeNotFoundError:
        raise CookieMissingError(
            "the metadata service",
            f"does not know bookie {first.bookie_id}",
            "Check that --metadata names the right cluster. A decommissioned bookie can only start "
            f"again as a new one, in empty directories: `{_FORMAT_COMMAND}`",
        ) from None


async def _stored_cluster(store: MetadataStore, first: Cookie) -> bytes:
    cluster = await require_cluster(store)
    if cluster != first.cluster:
        difference = Difference("cluster", first.cluster.hex(), cluster.hex())
        repair = "Check that --metadata names the right cluster"
        raise CookieMismatchError("the data directory", [difference], repair)
    return cluster


def _checked(cookie: Cookie | None, expected: Cookie) -> Cookie:
    where = f"directory {expected.directory}"
    if cookie is None:
        raise CookieMissingError(where, "is missing or has lost its cookie", _NEW_BOOKIE)
    different = differences(cookie, expected)
    if different:
        raise CookieMismatchError(where, different, _NEW_BOOKIE)
    if is_ahead(cookie, expected.starts):
        counted = Difference("starts", str(cookie.starts), f"at most {expected.starts + 1}")
        repair = (
            "The metadata service is older than this disk: it may have been restored from a backup"
        )
        raise CookieMismatchError(where, [counted], f"{repair}; restore its newest state")
    return cookie


async def _read_cookie(disk: Disk, directory: str) -> Cookie | None:
    data = await read_small(disk, directory, COOKIE_NAME)
    return None if data is None else decode_cookie(data, f"{directory}/{COOKIE_NAME}")


async def _write_cookie(disk: Disk, cookie: Cookie) -> None:
    await write_small(disk, cookie.directory, COOKIE_NAME, encode_cookie(cookie))
