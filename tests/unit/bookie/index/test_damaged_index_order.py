"""Keys out of order in a damaged LMDB page count as missing, and every loop ends."""

from collections.abc import Iterator
from typing import cast

import lmdb
import pytest

from bookie.errors import DiskFailedError
from bookie.files.index_lmdb import LmdbTransaction
from bookie.index import index_pages


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
        self._pairs = [(index_pages.state_key(number), b"value") for number in numbers]

    def cursor(self) -> DamagedCursor:
        return DamagedCursor(self._pairs)

    def get(self, _key: bytes) -> bytes | None:
        return None

    def delete(self, _key: bytes) -> bool:
        return False


def opened(*numbers: int) -> LmdbTransaction:
    return LmdbTransaction(cast("lmdb.Transaction", DamagedPage(*numbers)))


def test_a_scan_ends_where_keys_do_not_ascend() -> None:
    assert [number for number, _ in index_pages.scan_states(opened(3, 4, 4, 5), 0)] == [3, 4]
    assert [number for number, _ in index_pages.scan_states(opened(3, 9, 5), 2)] == [3, 9]
    assert index_pages.scan_states(opened(3, 4, 5), 7) == []


def test_every_loop_over_states_ends() -> None:
    after, rounds = -1, 0
    while found := index_pages.scan_states(opened(3, 4, 5), after):
        after, rounds = found[-1][0], rounds + 1
        assert rounds < 5
    assert after == 5


def test_key_on_the_wrong_side_is_not_found() -> None:
    transaction = opened(5)
    assert transaction.seek(index_pages.state_key(6)) is None
    assert transaction.seek(index_pages.state_key(5)) is not None
    assert transaction.before(index_pages.state_key(5)) is None
    assert transaction.before(index_pages.state_key(6)) is not None


def test_key_that_cannot_be_deleted_ends_the_deletion() -> None:
    with pytest.raises(lmdb.CorruptedError, match="cannot be deleted"):
        opened(5).delete(index_pages.state_key(5))
    opened(5).delete(index_pages.state_key(6))


def test_missing_mark_is_reported() -> None:
    with pytest.raises(DiskFailedError, match="checkpoint's mark"):
        index_pages.write_states(opened(), [])
