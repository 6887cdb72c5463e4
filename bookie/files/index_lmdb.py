"""Ordered key-value store in LMDB. It has one thread for updates and one for views, so that
look-ups do not wait for a checkpoint.

Leaves the meaning of keys and values to `bookie.index.index_pages`.

Invariants: a commit is synced before it is reported; a commit that fails to sync ends the store;
the map's size changes only while neither thread has a transaction; on a separate disk the store
leaves free the space that a start needs, and more for deletions; returned keys ascend, even from a
damaged page (LMDB's pages have no checksums): a key out of order counts as missing, which the index
notices; a file is mapped only if all pages that it uses can be read.

Format of LMDB 0.9 on a 64-bit machine, in its byte order. A page begins with its number u64, 2
bytes, flags u16, and the end of its array of offsets u16 (an overflow page: the number of its pages
u32). The array of u16 begins at byte 16. A node of a branch page begins with the number of a child
page u48. A node of a leaf page begins with the size of its data u32, flags u16 and the size of its
key u16; the data follow the key, and are the number of an overflow page u64 if a flag says so. The
first two pages are meta pages, and the one of the later transaction counts.

Source: protocol rule 2.4; storage design, "Index" and "Limits and refusals".
"""

import asyncio
import errno
import itertools
import operator
import os
import shutil
import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

import lmdb

from bookie.errors import (
    BookieError,
    DiskFailedError,
    DiskFullError,
    IndexFileError,
    NotPermittedError,
    UnreadableError,
)
from bookie.files import disk_calls
from bookie.files.disk import StoreSizes, StoreTransaction
from bookie.files.disk_calls import Threads

Result = TypeVar("Result")

MAP_BYTES_MAX: Final = 2**40
DATA_NAME: Final = "data.mdb"
PAGE_BYTES: Final = 4096
META_PAGES: Final = 2
SHORT_WRITE: Final = "mdb_txn_commit: Input/output error"
SHORT_WRITE_FREE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A file system with less free space than this is full if a write to it is short. LMDB writes the
pages of a transaction in pieces of at most some megabytes.
"""
START_BYTES: Final = 64 * 1024
"""Space that a store leaves free on a separate disk, for the cookie that the next start writes."""
DELETION_BYTES_MAX: Final = 16 * 1024 * 1024
DELETION_SHARE: Final = 16
"""An update that can wait leaves free 1/DELETION_SHARE of a separate disk, at most
DELETION_BYTES_MAX, because a deletion copies pages before it frees any.
"""
OUT_OF_ORDER: Final = (
    "keys are out of order: a page of the file is damaged. Run: quire bookie rebuild-index DIR"
)
BRANCH_PAGES_MAX: Final = 32
"""Approximate number of branch pages and free-list pages that one transaction copies."""


class LmdbTransaction:
    """One LMDB transaction behind the `StoreTransaction` interface."""

    def __init__(self, transaction: lmdb.Transaction) -> None:
        self._transaction = transaction
        self._cursor = transaction.cursor()

    def get(self, key: bytes) -> bytes | None:
        """See `StoreTransaction.get`."""
        return cast("bytes | None", self._transaction.get(key))

    def put(self, key: bytes, value: bytes) -> None:
        """See `StoreTransaction.put`."""
        self._transaction.put(key, value)

    def delete(self, key: bytes) -> None:
        """See `StoreTransaction.delete`. Raises lmdb.CorruptedError for a key that a search finds
        and a deletion does not: a caller that repeats the deletion would never end.
        """
        if not self._transaction.delete(key) and self._cursor.set_key(key):
            raise lmdb.CorruptedError("a key that is there cannot be deleted")

    def seek(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See `StoreTransaction.seek`."""
        item = self._item() if self._cursor.set_range(key) else None
        return item if item is not None and item[0] >= key else None

    def before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See `StoreTransaction.before`."""
        is_there = self._cursor.prev() if self._cursor.set_range(key) else self._cursor.last()
        item = self._item() if is_there else None
        return item if item is not None and item[0] < key else None

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """See `StoreTransaction.scan`."""
        pairs: list[tuple[bytes, bytes]] = []
        if self._cursor.set_range(start):
            least = start
            for pair in self._cursor.iternext(keys=True, values=True):
                key, value = cast("tuple[bytes, bytes]", pair)
                if len(pairs) >= limit or key < least:
                    break
                pairs.append((key, value))
                least = key + b"\0"
        return pairs

    def scan_keys(self, start: bytes, limit: int) -> list[bytes]:
        """See `StoreTransaction.scan_keys`. Raises lmdb.CorruptedError for keys out of order."""
        if not self._cursor.set_range(start):
            return []
        walk = self._cursor.iternext(keys=True, values=False)
        keys = cast("list[bytes]", list(itertools.islice(walk, limit)))
        if keys[0] < start or not all(map(operator.lt, keys, keys[1:])):
            raise lmdb.CorruptedError(OUT_OF_ORDER)
        return keys

    def _item(self) -> tuple[bytes, bytes]:
        # The environment was asked for bytes (buffers=False); its types say both.
        return cast("tuple[bytes, bytes]", self._cursor.item())


class LmdbStore:
    """See `bookie.files.disk.OrderedStore`."""

    def __init__(
        self, path: Path, environment: lmdb.Environment, writer: Threads, *, has_own_disk: bool
    ) -> None:
        self._path = path
        self._environment = environment
        self._writer = writer
        self._has_own_disk = has_own_disk
        self._sizes = _sizes_of(environment)
        self._reader = Threads("index-read")
        self._viewing = threading.Lock()
        """Held during each view: LMDB must not move its map while a transaction uses it."""
        self._failed: DiskFailedError | None = None

    @classmethod
    async def open(cls, path: Path, map_bytes: int, *, has_own_disk: bool = False) -> "LmdbStore":
        """Open or create the store in a directory. `has_own_disk`: the store alone fills its file
        system. Raises IndexFileError, DiskFullError, DiskFailedError.
        """
        writer = Threads("index")
        try:
            environment = await writer.obtain(
                _open_environment, path, map_bytes, give_up=lmdb.Environment.close
            )
        except (BookieError, asyncio.CancelledError):
            writer.close()
            raise
        return cls(path, environment, writer, has_own_disk=has_own_disk)

    async def view(self, job: Callable[[StoreTransaction], Result]) -> Result:
        """See `OrderedStore.view`."""
        return await self._reader.run(self._view, job)

    async def update(
        self, job: Callable[[StoreTransaction], Result], *, keeps_room: bool = False
    ) -> Result:
        """See `OrderedStore.update`. The job runs again after the map has grown for it."""
        return await self._writer.run(self._update, job, keeps_room)

    def sizes(self) -> StoreSizes:
        """See `OrderedStore.sizes`; as of the last update."""
        return self._sizes

    def growth_bytes(self, changes: int) -> int:
        """See `OrderedStore.growth_bytes`. A change copies at most one leaf page, and the pages of
        the previous transaction are not free yet.
        """
        return 2 * PAGE_BYTES * (changes + BRANCH_PAGES_MAX)

    async def close(self) -> None:
        """See `OrderedStore.close`."""
        await self._reader.run(_do_nothing)  # earlier views have run now
        await self._writer.run(self._environment.close)
        self._reader.close()
        self._writer.close()

    def _view(self, job: Callable[[StoreTransaction], Result]) -> Result:
        try:
            with self._viewing, self._environment.begin(buffers=False) as transaction:
                return job(LmdbTransaction(transaction))
        except lmdb.Error as error:
            raise DiskFailedError(str(self._path), str(error)) from error

    def _update(self, job: Callable[[StoreTransaction], Result], keeps_room: bool) -> Result:  # noqa: FBT001 - threads take no keywords
        while True:
            if self._failed is not None:
                raise self._failed
            self._bound_map(keeps_room=keeps_room)
            try:
                with self._environment.begin(write=True) as transaction:
                    result = job(LmdbTransaction(transaction))
            except lmdb.MapFullError:
                self._grow(keeps_room=keeps_room)
                continue
            except lmdb.Error as error:
                if _is_no_space(error) or self._is_full(error):
                    raise DiskFullError(str(self._path)) from error
                self._failed = DiskFailedError(str(self._path), str(error))
                raise self._failed from error
            self._sizes = _sizes_of(self._environment)
            return result

    def _is_full(self, error: lmdb.Error) -> bool:
        """Return whether a commit failed because the disk is full. LMDB reports a short write as an
        input/output error, after which nothing of the transaction is stored.
        """
        is_short = SHORT_WRITE in str(error)
        return is_short and shutil.disk_usage(self._path).free < SHORT_WRITE_FREE_BYTES_MAX

    def _bound_map(self, *, keeps_room: bool) -> None:
        """On a separate disk, limit the map so that the required space stays free. An update that
        needs that space fails before it writes anything.
        """
        if self._has_own_disk:
            most = self._map_bytes_max(keeps_room=keeps_room)
            if self._sizes.map_bytes > most:
                self._set_map(most)

    def _grow(self, *, keeps_room: bool) -> None:
        """Double the map, between views. The file grows only when pages are written, so the free
        space is checked here.
        """
        size = self._sizes.map_bytes
        wanted = min(2 * size, MAP_BYTES_MAX)
        if self._has_own_disk:
            wanted = min(wanted, self._map_bytes_max(keeps_room=keeps_room))
        elif shutil.disk_usage(self._path).free < size // 8:
            raise DiskFullError(str(self._path))
        if wanted <= size:
            raise DiskFullError(str(self._path))
        self._set_map(wanted)

    def _map_bytes_max(self, *, keeps_room: bool) -> int:
        """Return the maximum size of the file on a separate disk, a multiple of the page size."""
        disk = shutil.disk_usage(self._path)
        kept = START_BYTES
        if keeps_room:
            kept += min(DELETION_BYTES_MAX, disk.total // DELETION_SHARE)
        most = self._sizes.used_bytes + max(0, disk.free - kept)
        return most - most % PAGE_BYTES

    def _set_map(self, size: int) -> None:
        with self._viewing:
            self._environment.set_mapsize(size)
        self._sizes = _sizes_of(self._environment)


def _sizes_of(environment: lmdb.Environment) -> StoreSizes:
    info, stat = environment.info(), environment.stat()
    pages, page_bytes = info["last_pgno"] + 1, stat["psize"]
    filled = sum(stat[kind] for kind in ("branch_pages", "leaf_pages", "overflow_pages"))
    reusable = max(0, pages - filled - META_PAGES) * page_bytes
    return StoreSizes(pages * page_bytes, info["map_size"], reusable, stat["entries"])


def _do_nothing() -> None:
    """Do nothing: the job only waits for the jobs before it."""


def _open_environment(path: Path, map_bytes: int) -> lmdb.Environment:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = path / DATA_NAME
        if not data.exists():
            _make_file(data)
        check_file(data)
        held = data.stat().st_size
        while map_bytes < 2 * held:
            map_bytes *= 2
        return lmdb.open(
            str(path), map_size=map_bytes, subdir=True, mode=0o600, readahead=False, max_dbs=0
        )
    except (OSError, lmdb.Error) as error:
        if _is_no_space(error):
            raise DiskFullError(str(path)) from error
        if isinstance(error, PermissionError) or os.strerror(errno.EACCES) in str(error):
            raise NotPermittedError(str(path), str(error)) from error
        raise DiskFailedError(str(path), str(error)) from error


def _make_file(data: Path) -> None:
    """Create an empty store and make it durable before it gets its name. LMDB does not sync the
    first pages of a file, and after a power loss it does not accept such a file as a store.
    """
    new = data.with_name(f"{data.name}.new")
    new.unlink(missing_ok=True)
    lmdb.open(str(new), subdir=False, mode=0o600, lock=False).close()
    with new.open("r+b") as file:
        disk_calls.sync(file.fileno())
    new.rename(data)


def _is_no_space(error: Exception) -> bool:
    number = getattr(error, "errno", None)
    return number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)


READ_BYTES: Final = 1024 * 1024
DEPTH_MAX: Final = 32
"""LMDB's limit of the height of a tree."""
_ORDER: Final = sys.byteorder
_HEADER: Final = struct.Struct("=QHHHH")
_META: Final = struct.Struct("=II8xQ" + 2 * "IHHQQQQQ" + "QQ")
_PAGE_COUNT: Final = struct.Struct("=I")
_NODE: Final = struct.Struct("=HHHH")
_NUMBER: Final = struct.Struct("=Q")
_BRANCH, _LEAF, _META_PAGE = 0x01, 0x02, 0x08
_BIG_DATA: Final = 0x01
_PAGE_BYTES: Final = tuple(2**power for power in range(9, 17))
_MAGIC: Final = 0xBEEFC0DE
_NO_PAGE: Final = 2**64 - 1


class _Meta(NamedTuple):
    """The part of a meta page that says where the trees are."""

    transaction: int
    page_bytes: int
    roots: tuple[int, int]
    """Root pages of the tree of free pages and of the keys, `_NO_PAGE` for an empty tree."""


def check_file(path: Path) -> None:
    """Read all of an LMDB file once, and check its pages. An empty file is one without pages.

    Raises IndexFileError when a page in use is missing, cannot be read, or does not lead to other
    pages as LMDB needs; DiskFailedError, DescriptorsExhaustedError.
    """
    with disk_calls.translated(str(path)):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size:
            _Pages(path, descriptor, size).check()
    finally:
        os.close(descriptor)


@dataclass(eq=False, repr=False)
class _Pages:
    """The pages of one open file."""

    _path: Path
    _descriptor: int
    _size: int
    _page_bytes: int = field(default=0, init=False)
    _children: "dict[int, array[int]]" = field(default_factory=dict, init=False)
    """Child pages of each branch page, also of those that are free."""
    _unreadable: dict[int, None] = field(default_factory=dict, init=False)

    def check(self) -> None:
        first = self._meta_at(0)
        self._page_bytes = first.page_bytes
        meta = max(first, self._meta_at(first.page_bytes))
        self._read_all()
        free, keys = meta.roots
        for leaf in self._leaves(free, 0):
            self._check_leaf(leaf)
        for _ in self._leaves(keys, 0):
            pass

    def _meta_at(self, offset: int) -> _Meta:
        data = self._read(offset, _HEADER.size + _META.size)
        if len(data) < _HEADER.size + _META.size:
            raise self._error("its end is missing")
        _, _, flags, _, _ = _HEADER.unpack_from(data)
        magic, _, _, *trees, _, transaction = _META.unpack_from(data, _HEADER.size)
        page_bytes = trees[0]
        if magic != _MAGIC or not flags & _META_PAGE or page_bytes not in _PAGE_BYTES:
            raise self._error(f"the page at byte {offset} is no meta page of LMDB")
        return _Meta(transaction, page_bytes, (trees[7], trees[15]))

    def _read_all(self) -> None:
        """Read the file in its order, which is much faster than in the order of the keys."""
        for start in range(0, self._size, READ_BYTES):
            try:
                self._note_pages(start, self._read(start, READ_BYTES))
            except UnreadableError:
                for offset in range(start, min(start + READ_BYTES, self._size), self._page_bytes):
                    try:
                        self._note_pages(offset, self._read(offset, self._page_bytes))
                    except UnreadableError:
                        self._unreadable[offset // self._page_bytes] = None

    def _note_pages(self, start: int, data: bytes) -> None:
        for offset in range(0, len(data) - self._page_bytes + 1, self._page_bytes):
            number = (start + offset) // self._page_bytes
            page, _, flags, end, _ = _HEADER.unpack_from(data, offset)
            if page == number and flags == _BRANCH:
                self._children[number] = array("Q", self._children_in(data, offset, end))

    def _children_in(self, data: bytes, page: int, end: int) -> Iterator[int]:
        for place in range(page + _HEADER.size, page + min(end, self._page_bytes) - 1, 2):
            node = int.from_bytes(data[place : place + 2], _ORDER)
            if node + _NODE.size <= self._page_bytes:
                low, middle, high, _ = _NODE.unpack_from(data, page + node)
                yield low | middle << 16 | high << 32

    def _leaves(self, number: int, depth: int) -> Iterator[int]:
        """Yield the leaf pages below a page, and check that every page on the way is there."""
        if number == _NO_PAGE:
            return
        self._require(number, 1)
        children = self._children.get(number)
        if children is None:
            yield number
            return
        if depth == DEPTH_MAX:
            raise self._error(f"page {number} is below itself")
        for child in children:
            yield from self._leaves(child, depth + 1)

    def _check_leaf(self, number: int) -> None:
        """Check the overflow pages of a leaf page of the tree of free pages. The values of keys
        are small.
        """
        data = self._read(number * self._page_bytes, self._page_bytes)
        _, _, flags, end, _ = _HEADER.unpack_from(data)
        if not flags & _LEAF:
            raise self._error(f"page {number} is neither a branch page nor a leaf page")
        for place in range(_HEADER.size, min(end, self._page_bytes) - 1, 2):
            node = int.from_bytes(data[place : place + 2], _ORDER)
            if node + _NODE.size > self._page_bytes:
                raise self._error(f"page {number} has a node behind its end")
            _, _, node_flags, key_bytes = _NODE.unpack_from(data, node)
            value = node + _NODE.size + key_bytes
            if node_flags & _BIG_DATA and value + _NUMBER.size <= self._page_bytes:
                (first,) = _NUMBER.unpack_from(data, value)
                self._require(first, 1)
                head = self._read(first * self._page_bytes, _HEADER.size)
                self._require(first, _PAGE_COUNT.unpack_from(head, 12)[0])

    def _require(self, first: int, count: int) -> None:
        """Check that some pages are in the file and can be read."""
        if (first + count) * self._page_bytes > self._size:
            needed = (first + count) * self._page_bytes
            raise self._error(f"it has {self._size} bytes, and a page in use ends at {needed}")
        for number in range(first, first + count):
            if number in self._unreadable:
                offset = number * self._page_bytes
                raise self._error(f"the disk cannot read the page at byte {offset}, which is used")

    def _read(self, offset: int, size: int) -> bytes:
        return disk_calls.read_all(self._descriptor, str(self._path), offset, size)

    def _error(self, why: str) -> IndexFileError:
        return IndexFileError(str(self._path), why)
