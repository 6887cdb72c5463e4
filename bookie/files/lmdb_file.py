"""Check that every page that an LMDB file uses can be read, before the file is mapped.

LMDB reads its file through a map of memory. A page that is behind the end of the file, or that the
disk cannot read, ends the process by SIGBUS without a message. Leaves the keys and values to
`bookie.files.index_lmdb` and `bookie.index.index_pages`; a page that can be read may still be
damaged.

Format of LMDB 0.9 on a 64-bit machine, in its byte order. A page begins with its number u64, 2
bytes, flags u16, and the end of its array of offsets u16 (an overflow page: the number of its pages
u32). The array of u16 begins at byte 16. A node of a branch page begins with the number of a child
page u48. A node of a leaf page begins with the size of its data u32, flags u16 and the size of its
key u16; the data follow the key, and are the number of an overflow page u64 if a flag says so. The
first two pages are meta pages, and the one of the later transaction counts.
Invariant: only pages in use are judged. LMDB may leave free pages unwritten at the end of a file.
Source: protocol rule 2.4.
"""

import os
import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from bookie.errors import IndexFileError, UnreadableError
from bookie.files import disk_calls

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
            found, _, flags, end, _ = _HEADER.unpack_from(data, offset)
            if found == number and flags == _BRANCH:
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
