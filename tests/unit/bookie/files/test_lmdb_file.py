"""A file of the index is mapped only if every page that it uses is there and can be read."""

import errno
import os
from pathlib import Path

import lmdb
import pytest

from bookie.errors import IndexFileError
from bookie.files.index_lmdb import check_file

PAGE_BYTES = 4096
KEYS = 3_000


def fill(path: Path) -> dict[bytes, bytes]:
    """Make a file with keys of several heights, free pages and a long list of these."""
    with lmdb.open(str(path), subdir=False, lock=False, map_size=2**26) as environment:
        for start in range(0, KEYS, 500):
            with environment.begin(write=True) as transaction:
                for number in range(start, start + 500):
                    transaction.put(b"s%08d" % number, b"%d" % number * 20)
        with environment.begin(write=True) as transaction:
            for number in range(200, KEYS - 700):
                transaction.delete(b"s%08d" % number)
    return content(path)


def content(path: Path) -> dict[bytes, bytes]:
    with (
        lmdb.open(str(path), subdir=False, lock=False, readonly=True) as environment,
        environment.begin() as transaction,
    ):
        return dict(transaction.cursor().iternext())


def is_refused(path: Path) -> bool:
    try:
        check_file(path)
    except IndexFileError:
        return True
    return False


def test_a_file_that_lacks_a_page_in_use_is_refused(tmp_path: Path) -> None:
    path, cut = tmp_path / "data", tmp_path / "cut"
    expected = fill(path)
    check_file(path)
    whole = path.read_bytes()
    refused = 0
    for size in range(PAGE_BYTES, len(whole), PAGE_BYTES):
        cut.write_bytes(whole[:size])
        if is_refused(cut):
            refused += 1
        else:  # only free pages are missing
            cut.write_bytes(whole[:size] + bytes(len(whole) - size))
            assert content(cut) == expected
    assert refused > 10


def test_a_file_with_an_unreadable_page_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "data", tmp_path / "other"
    expected = fill(path)
    whole, read_at = path.read_bytes(), os.pread
    bad = 0

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if offset <= bad < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return read_at(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    free = 0
    for bad in range(2 * PAGE_BYTES, len(whole), PAGE_BYTES):
        if not is_refused(path):
            free += 1
            other.write_bytes(whole[:bad] + bytes(PAGE_BYTES) + whole[bad + PAGE_BYTES :])
            assert content(other) == expected
    assert 0 < free < len(whole) // PAGE_BYTES - 10


def test_pages_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    fill(path)
    whole = bytearray(path.read_bytes())
    branches = [
        start
        for start in range(0, len(whole), PAGE_BYTES)
        if int.from_bytes(whole[start + 10 : start + 12], "little") == 1
    ]
    for start in branches:  # each first child is behind the end, or is the page itself
        for child in (len(whole) // PAGE_BYTES, start // PAGE_BYTES):
            node = start + int.from_bytes(whole[start + 16 : start + 18], "little")
            damaged = bytearray(whole)
            damaged[node : node + 4] = child.to_bytes(4, "little")
            path.write_bytes(damaged)
            if is_refused(path):
                break
        else:
            continue
        break
    else:
        raise AssertionError("no branch page is in use")


@pytest.mark.parametrize("data", [b"x", bytes(8192), b"text" * 4096])
def test_another_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    with pytest.raises(IndexFileError, match="rebuild-index"):
        check_file(path)


def test_an_empty_file_has_no_pages(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.touch()
    check_file(path)
