"""Cookies of bookies: created once, also when answers are lost."""

from dataclasses import replace

import pytest

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import COOKIES
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import A, B
from tests.unit.metadata.conftest import ScriptedFaults

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
