"""Stored forms of registrations and cookies, and when a registration is rewritten."""

from collections.abc import Callable
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.registry.cookies import COOKIE_CODEC, CookieRecord
from metadata.registry.registration import (
    REGISTRATION_CODEC,
    REWRITE_INTERVAL_S,
    BookieRegistration,
    rewrite_due_s,
)
from metadata.store.ephemeral import HeldNode, pack_held, unpack_held
from tests.support.metadata.samples import A
from tests.support.metadata.strategies import bookie_ids, texts

sizes = st.integers(0, 2**63 - 1)
versions = st.tuples(st.integers(0, 9), st.integers(10, 99))
registrations = st.builds(
    BookieRegistration,
    bookie_id=bookie_ids,
    host=texts,
    port=st.integers(0, 65_535),
    tls=st.booleans(),
    admin_url=texts,
    location=texts,
    capacity_bytes=sizes,
    free_bytes=sizes,
    weight=st.floats(0, 1e6),
    writable=st.booleans(),
    build=texts,
    wire_versions=versions,
    disk_versions=versions,
    features=st.lists(texts, max_size=3).map(tuple),
)
cookies = st.builds(
    CookieRecord,
    bookie_id=bookie_ids,
    instance=st.binary(min_size=16, max_size=16),
    created_ms=sizes,
    directory_count=st.integers(1, 9),
    directories_hash=st.binary(max_size=32),
)
held_nodes = st.builds(HeldNode, st.binary(min_size=16, max_size=16), sizes, st.binary())


@given(registrations)
def test_registrations_round_trip(registration: BookieRegistration) -> None:
    assert (
        REGISTRATION_CODEC.unpack(
            "a registration", REGISTRATION_CODEC.pack("a registration", registration)
        )
        == registration
    )


@given(cookies)
def test_cookies_round_trip(cookie: CookieRecord) -> None:
    assert COOKIE_CODEC.unpack("/c", COOKIE_CODEC.pack("a cookie", cookie)) == cookie


@given(held_nodes)
def test_held_nodes_round_trip(held: HeldNode) -> None:
    assert unpack_held("/h", pack_held(held)) == held


READERS: list[Callable[[bytes], object]] = [
    lambda value: REGISTRATION_CODEC.unpack("a registration", value),
    lambda value: COOKIE_CODEC.unpack("/c", value),
    lambda value: unpack_held("/h", value),
]


@pytest.mark.parametrize("read", READERS)
@given(garbage=st.binary(max_size=60))
def test_garbage_is_a_format_error(read: Callable[[bytes], object], garbage: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        read(garbage)


@pytest.mark.parametrize("read", READERS)
@given(fields=st.lists(st.one_of(st.none(), st.integers(-9, 9), st.text(), st.binary())))
def test_other_fields_are_a_format_error(
    read: Callable[[bytes], object], fields: list[object]
) -> None:
    for count in (4, 6, 15):
        padded = [1, *fields, *[None] * count][:count]
        try:
            read(msgpack.packb(padded))
        except MetadataFormatError:
            continue


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (1, "Not a bookie"),
        (1, 5),
        (3, -1),
        (3, 65_536),
        (7, -1),
        (8, 2**63),
        (12, []),
        (12, [1]),
        (12, [1, 2, 3]),
        (12, [2, 1]),
        (12, [-1, 1]),
        (13, [2, 1]),
        (13, [1, 2**63]),
        (14, [1]),
    ],
)
def test_a_field_out_of_range_is_a_format_error(position: int, value: object) -> None:
    fields = msgpack.unpackb(REGISTRATION_CODEC.pack("a registration", registration()))
    fields[position] = value
    with pytest.raises(MetadataFormatError, match="/bookies/a"):
        REGISTRATION_CODEC.unpack("/bookies/a", msgpack.packb(fields))


def registration(**changes: object) -> BookieRegistration:
    plain = BookieRegistration(A, "host", 3181, capacity_bytes=1000, free_bytes=500)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "age_s", "due_s"),
    [
        ({}, 1e9, None),
        ({"free_bytes": 460}, 1e9, None),
        ({"free_bytes": 450}, 1e9, 0.0),
        ({"free_bytes": 550}, 10.0, REWRITE_INTERVAL_S - 10.0),
        ({"writable": False}, 0.0, 0.0),
        ({"writable": False, "free_bytes": 499}, 0.0, 0.0),
        ({"host": "other"}, 0.0, 0.0),
    ],
)
def test_when_a_registration_is_rewritten(
    changes: dict[str, object], age_s: float, due_s: float | None
) -> None:
    assert rewrite_due_s(registration(), registration(**changes), age_s) == due_s


@pytest.mark.parametrize(("capacity", "free", "due_s"), [(0, 500, None), (10, 501, 0.0)])
def test_a_small_bookie_is_rewritten_for_each_difference(
    capacity: int, free: int, due_s: float | None
) -> None:
    stored = registration(capacity_bytes=capacity)
    assert rewrite_due_s(stored, replace(stored, free_bytes=free), 1e9) == due_s
