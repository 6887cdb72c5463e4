"""Users in memory: found without waiting, followed, and reported when a credential is revoked."""

import random

import pytest

from metadata.errors import StoreUnavailableError
from metadata.paths import USERS
from metadata.security.user_store import USER_KIND, UserStore, UserTable
from metadata.store.memory import MemoryMetadataStore
from quire.identity.sasl.credentials import TOOLS, ScramMechanism, form_of
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.support.metadata.users import credential
from tests.until import until

SHA_256, SHA_512 = ScramMechanism
OLD, NEW = credential(SHA_256, 1), credential(SHA_256, 2)


async def test_users_are_followed_and_revocations_reported(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    users, table = UserStore(other_store, rng), UserTable(store, rng)
    calls: list[tuple[str, frozenset[ScramMechanism]]] = []
    cancel = table.on_revocation(lambda name, gone: calls.append((name, gone)))
    await users.add("a", [OLD])
    await table.start()
    assert table.find("a", SHA_256) == OLD
    assert table.find("a", SHA_512) is None
    assert table.find("b", SHA_256) is None
    await users.add("b", [OLD])
    await users.alter("a", [], [credential(SHA_512)])
    await until(lambda: table.find("b", SHA_256) == OLD)
    await until(lambda: table.find("a", SHA_512) is not None)
    assert calls == [], "nothing was revoked"
    await users.alter("a", [], [NEW])
    await until(lambda: table.find("a", SHA_256) == NEW)
    assert calls == [("a", frozenset({SHA_256}))]
    await users.remove("b")
    await until(lambda: table.find("b", SHA_256) is None)
    assert calls[1:] == [("b", frozenset({SHA_256}))]
    assert list(table.users) == ["a"]
    cancel()
    await users.remove("a")
    await until(lambda: not table.users)
    assert len(calls) == 2
    await table.aclose()


async def test_a_removal_and_a_new_user_of_the_name_between_two_reads(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    users, table = UserStore(other_store, rng), UserTable(store, rng)
    calls: list[str] = []
    table.on_revocation(lambda name, _: calls.append(name))
    await users.add("a", [OLD])
    await table.start()
    await users.remove("a")
    await users.add("a", [NEW])
    await until(lambda: table.find("a", SHA_256) == NEW)
    assert calls == ["a"]
    await table.aclose()


async def test_an_expired_session_keeps_the_users_and_follows_again(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
) -> None:
    users, table = UserStore(other_store, rng), UserTable(store, rng)
    await users.add("a", [OLD])
    await users.add("b", [OLD])
    await table.start()
    store.expire()
    assert table.find("a", SHA_256) == OLD
    await users.alter("a", [], [NEW])
    await users.remove("b")
    await until(lambda: table.find("a", SHA_256) == NEW and "b" not in table.users)
    await table.aclose()
    assert table.find("a", SHA_256) == NEW, "a closed table keeps what it has"


async def test_a_failing_store_changes_nothing(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    faults: ScriptedFaults,
) -> None:
    users, table = UserStore(other_store, rng), UserTable(store, rng)
    await users.add("a", [OLD])
    await table.start()
    faults.meets, faults.refusals = reads_of(store), 3
    with pytest.raises(StoreUnavailableError):
        await table.refresh()
    await users.remove("a")
    assert table.find("a", SHA_256) == OLD
    await until(lambda: table.find("a", SHA_256) is None)
    assert faults.refusals == 0
    await table.aclose()


async def test_a_record_that_cannot_be_read_keeps_the_last_one(
    store: MemoryMetadataStore, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    users, table = UserStore(store, rng), UserTable(store, rng)
    await users.add("a", [OLD])
    await store.create(f"{USERS}/another form", b"")
    await table.start()
    path = USER_KIND.path("a")
    caplog.clear()
    await store.compare_and_set(path, b"damaged", (await store.get(path)).version)
    await until(lambda: "ignoring a value" in caplog.text)
    assert table.find("a", SHA_256) == OLD
    assert list(table.users) == ["a"]
    await store.delete(path, (await store.get(path)).version)
    await until(lambda: not table.users)
    await table.aclose()


async def test_a_refresh_shows_every_change_that_ended_before(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    users, table = UserStore(other_store, rng), UserTable(store, rng)
    await table.start()
    await users.add("a", [OLD])
    await table.refresh()
    assert table.find("a", SHA_256) == OLD
    await users.alter("a", [], [NEW])
    await table.refresh()
    assert table.find("a", SHA_256) == NEW
    await users.remove("a")
    await table.refresh()
    assert not table.users
    await table.aclose()


async def test_the_forms_are_those_of_the_credentials(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    users, table = UserStore(other_store, rng), UserTable(store, rng)
    await table.start()
    assert {form for _, (form, _) in table.forms.tickets} == {*TOOLS}
    await users.add("a", [OLD])
    await until(lambda: {form for _, (form, _) in table.forms.tickets} == {form_of(OLD)})
    await users.alter("a", [], [NEW])
    await until(lambda: table.find("a", SHA_256) == NEW)
    assert {form for _, (form, _) in table.forms.tickets} == {form_of(NEW)}
    await users.remove("a")
    await until(lambda: {form for _, (form, _) in table.forms.tickets} == {*TOOLS})
    await table.aclose()
