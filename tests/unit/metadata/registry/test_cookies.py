"""Cookies of bookies: created once, also when answers are lost."""

from dataclasses import replace

import msgpack
import pytest

from metadata.errors import (
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import COOKIES
from metadata.registry.cookies import COOKIE_CODEC, CookieRecord, CookieStore
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import A, B
from tests.support.metadata.scripted_faults import ScriptedFaults

COOKIE = CookieRecord(A, bytes(range(16)), 1_700_000_000_000, 2, b"hash")


async def test_a_cookie_is_kept(store: MemoryMetadataStore) -> None:
    cookies = CookieStore(store)
    assert await cookies.create(COOKIE) == 0
    assert await cookies.get(A) == (COOKIE, 0)
    changed = replace(COOKIE, directory_count=3)
    assert await cookies.compare_and_set(changed, Version(0)) == 1
    with pytest.raises(VersionConflictError):
        await cookies.compare_and_set(COOKIE, Version(0))
    assert await cookies.list_bookie_ids() == [A]
    await cookies.delete(A, Version(1))
    with pytest.raises(NodeNotFoundError):
        await cookies.get(A)
    assert await cookies.list_bookie_ids() == []


async def test_an_id_is_created_once(store: MemoryMetadataStore) -> None:
    cookies = CookieStore(store)
    await cookies.create(COOKIE)
    assert await cookies.create(COOKIE) == 0
    with pytest.raises(NodeExistsError):
        await cookies.create(replace(COOKIE, instance=bytes(16)))


async def test_a_lost_answer_is_decided_by_reading(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create(COOKIES, b"")
    cookies = CookieStore(store)
    faults.acts = ["dropped", "lost", "lost"]
    with pytest.raises(OutcomeUnknownError):
        await cookies.create(COOKIE)
    assert await cookies.create(COOKIE) == 0
    changed = replace(COOKIE, directory_count=3)
    assert await cookies.compare_and_set(changed, Version(0)) == 1
    assert await cookies.create(replace(COOKIE, bookie_id=B)) == 0


async def test_reads_see_what_was_just_written(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
) -> None:
    cookies, others = CookieStore(store), CookieStore(other_store)
    await others.create(COOKIE)
    faults.missed = 1
    assert await cookies.list_bookie_ids() == [A]
    changed = replace(COOKIE, directory_count=3)
    await others.compare_and_set(changed, Version(0))
    assert await cookies.get(A) == (changed, 1)


async def test_only_a_later_version_shows_that_a_change_was_applied(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    """A change to what is stored already is not applied because the two are equal."""
    cookies = CookieStore(store)
    await cookies.create(COOKIE)
    faults.acts = ["dropped"]
    with pytest.raises(OutcomeUnknownError):
        await cookies.compare_and_set(COOKIE, Version(0))
    faults.acts = ["lost"]
    assert await cookies.compare_and_set(COOKIE, Version(0)) == 1


async def test_names_that_are_no_bookies_are_not_listed(store: MemoryMetadataStore) -> None:
    cookies = CookieStore(store)
    await cookies.create(replace(COOKIE, bookie_id=B))
    await store.create(f"{COOKIES}/Not a bookie", b"")
    assert await cookies.list_bookie_ids() == [B]


def test_the_fields_in_their_order() -> None:
    fields = msgpack.unpackb(COOKIE_CODEC.pack("a cookie", replace(COOKIE, starts_before=4)))
    assert fields == [1, A, bytes(range(16)), 1_700_000_000_000, 2, b"hash", 4]


def test_the_count_of_starts_goes_on_in_a_new_node() -> None:
    restored = COOKIE.counted_at(7, Version(2))
    assert (restored.starts_before, restored.starts_at(Version(4))) == (5, 9)


LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("position", "value", "is_good"),
    [
        (1, "Not a bookie", False),
        (2, "text", False),
        (3, 0, True),
        (3, LARGEST, True),
        (3, -1, False),
        (3, LARGEST + 1, False),
        (4, 0, True),
        (4, LARGEST, True),
        (4, -1, False),
        (4, LARGEST + 1, False),
        (5, "text", False),
        (6, 0, True),
        (6, LARGEST, True),
        (6, -1, False),
        (6, LARGEST + 1, False),
    ],
)
def test_a_field_out_of_range_is_a_format_error(
    position: int, value: object, *, is_good: bool
) -> None:
    fields = msgpack.unpackb(COOKIE_CODEC.pack("a cookie", COOKIE))
    fields[position] = value
    packed = msgpack.packb(fields)
    if is_good:
        assert COOKIE_CODEC.pack("a cookie", COOKIE_CODEC.unpack("/c", packed)) == packed
    else:
        with pytest.raises(MetadataFormatError, match="/c"):
            COOKIE_CODEC.unpack("/c", packed)
