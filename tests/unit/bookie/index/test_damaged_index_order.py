"""Keys out of order in a damaged LMDB page count as missing, and every loop ends."""

from collections.abc import Iterator
from typing import cast

import lmdb
import pytest

from bookie.errors import DiskFailedError
from bookie.files.index_lmdb import LmdbTransaction
from bookie.index import index_pages, stored_runs
from metadata.ids import LEDGER_ID_MAX


def key_of(number: int) -> bytes:
    return index_pages.NUMBER_KEY.pack(stored_runs.LIVE_BYTES, number)


class DamagedCursor:
    """Cursor that returns the content of its page for any key."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs
        self._at = 0

    def set_range(self, _key: bytes) -> bool:
        self._at = 0
        return bool(self._pairs)

    def set_key(self, key: bytes) -> bool:
        return any(key == each for each, _ in self._pairs)

    def prev(self) -> bool:
        self._at = -1
        return True

    def last(self) -> bool:
        return self.prev()

    def item(self) -> tuple[bytes, bytes]:
        return self._pairs[self._at]

    def iternext(self, *, keys: bool, values: bool) -> Iterator[tuple[bytes, bytes]]:
        assert keys
        assert values
        return iter(self._pairs)


class DamagedPage:
    """An LMDB transaction over one page with the wrong keys."""

    def __init__(self, *numbers: int) -> None:
        self._pairs = [(key_of(number), b"value") for number in numbers]

    def cursor(self) -> DamagedCursor:
        return DamagedCursor(self._pairs)

    def get(self, _key: bytes) -> bytes | None:
        return None

    def delete(self, _key: bytes) -> bool:
        return False


def opened(*numbers: int) -> LmdbTransaction:
    return LmdbTransaction(cast("lmdb.Transaction", DamagedPage(*numbers)))


def scanned(after: int, *numbers: int) -> list[int]:
    found = stored_runs.scan_segments(opened(*numbers), after, stored_runs.LIVE_BYTES)
    return [number for number, _ in found]


def test_a_scan_ends_where_keys_do_not_ascend() -> None:
    assert scanned(0, 3, 4, 4, 5) == [3, 4]
    assert scanned(2, 3, 9, 5) == [3, 9]
    assert scanned(7, 3, 4, 5) == []


def test_every_loop_over_segments_ends() -> None:
    for last in (5, LEDGER_ID_MAX, 2**64 - 1):
        found = stored_runs.remove_segments(opened(3, 4, last), ())
        assert found == {3: 0, 4: 0, last: 0}


def test_key_on_the_wrong_side_is_not_found() -> None:
    transaction = opened(5)
    assert transaction.seek(key_of(6)) is None
    assert transaction.seek(key_of(5)) is not None
    assert transaction.before(key_of(5)) is None
    assert transaction.before(key_of(6)) is not None


def test_key_that_cannot_be_deleted_ends_the_deletion() -> None:
    with pytest.raises(lmdb.CorruptedError, match="cannot be deleted"):
        opened(5).delete(key_of(5))
    opened(5).delete(key_of(6))


def test_missing_mark_is_reported() -> None:
    with pytest.raises(DiskFailedError, match="checkpoint's mark"):
        index_pages.write_states(opened(), [])
