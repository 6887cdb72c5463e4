"""Cookies round-trip through their files, and differences are named."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import CookieDamagedError
from bookie.identity.cookie import (
    DIRECTORIES,
    Cookie,
    decode_cookie,
    differences,
    encode_cookie,
    is_ahead,
    is_stale,
)
from metadata.ids import BookieId

COOKIE = Cookie(
    BookieId("bookie-0a1b2c3d4e5f"), bytes(range(16)), bytes(16), "log", DIRECTORIES, 1_700_000, 3
)
GOLDEN = b"""\
quire-cookie 1
bookie-id bookie-0a1b2c3d4e5f
instance 000102030405060708090a0b0c0d0e0f
cluster 00000000000000000000000000000000
directory log
directories identity,log,index
created-ms 1700000
starts 3
crc32c aeb8e54e
"""


def test_golden_cookie() -> None:
    assert encode_cookie(COOKIE) == GOLDEN
    assert decode_cookie(GOLDEN, "log/cookie") == COOKIE


@given(
    st.builds(
        Cookie,
        st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True).map(BookieId),
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=16, max_size=16),
        st.sampled_from(DIRECTORIES),
        st.just(DIRECTORIES),
        st.integers(0, 2**63),
        st.integers(0, 2**63),
    )
)
def test_cookies_round_trip(cookie: Cookie) -> None:
    assert decode_cookie(encode_cookie(cookie), "somewhere") == cookie


@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    damaged = bytearray(GOLDEN)
    damaged[data.draw(st.integers(0, len(damaged) - 2))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CookieDamagedError, match="somewhere"):
        decode_cookie(bytes(damaged), "somewhere")


@pytest.mark.parametrize("size", range(len(GOLDEN) - 1))
def test_truncation_is_found(size: int) -> None:
    with pytest.raises(CookieDamagedError):
        decode_cookie(GOLDEN[:size], "somewhere")


@given(st.binary(max_size=300))
def test_garbage_is_no_cookie(garbage: bytes) -> None:
    with pytest.raises(CookieDamagedError):
        decode_cookie(garbage, "somewhere")


def test_a_newer_format_is_refused_by_its_number() -> None:
    with pytest.raises(CookieDamagedError, match="format version is 2"):
        decode_cookie(GOLDEN.replace(b"quire-cookie 1", b"quire-cookie 2"), "somewhere")


def test_differences_are_named() -> None:
    other = replace(COOKIE, bookie_id=BookieId("bookie-other"), directory="index", starts=9)
    assert [str(difference) for difference in differences(other, COOKIE)] == [
        "bookie_id is bookie-other, expected bookie-0a1b2c3d4e5f",
        "directory is index, expected log",
    ]
    assert differences(COOKIE, COOKIE) == []


def test_starts_distinguish_old_copies_from_interrupted_starts() -> None:
    assert [is_stale(COOKIE, starts) for starts in (2, 3, 4)] == [False, False, True]
    assert [is_ahead(COOKIE, starts) for starts in (1, 2, 3)] == [True, False, False]
