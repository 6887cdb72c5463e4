"""Users: created, changed, removed and listed, also when answers are lost (1.2, 1.3)."""

import random

import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.paths import USERS
from metadata.security.errors import (
    CredentialNotFoundError,
    InvalidUserNameError,
    TooManyUsersError,
    UserExistsError,
    UserNotFoundError,
)
from metadata.security.user_store import USER_KIND, UserStore
from metadata.security.users import UserRecord, user_of
from metadata.store.child_values import READS_AT_ONCE_MAX
from metadata.store.memory import MemoryMetadataStore
from quire.identity.sasl.credentials import ScramMechanism
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.support.metadata.users import credential

SHA_256, SHA_512 = ScramMechanism
OLD, NEW = credential(SHA_256, 1), credential(SHA_256, 2)


@pytest.fixture
def users(store: MemoryMetadataStore, rng: random.Random) -> UserStore:
    return UserStore(store, rng)


async def test_a_user_from_its_creation_to_its_end(users: UserStore) -> None:
    with pytest.raises(UserNotFoundError, match="there is no user 'a/b'"):
        await users.get("a/b")
    await users.add("a/b", [OLD])
    assert await users.get("a/b") == user_of("a/b", [OLD])
    with pytest.raises(UserExistsError):
        await users.add("a/b", [NEW])
    assert await users.replace("a/b", lambda _: [NEW]) == user_of("a/b", [NEW])
    await users.alter("a/b", [], [credential(SHA_512)])
    assert (await users.get("a/b")).mechanisms == (SHA_256, SHA_512)
    await users.alter("a/b", [SHA_256], [])
    assert (await users.get("a/b")).mechanisms == (SHA_512,)
    with pytest.raises(CredentialNotFoundError):
        await users.alter("a/b", [SHA_256], [])
    await users.alter("a/b", [SHA_512], [])
    assert await users.names() == []
    await users.add("a/b", [OLD])
    await users.remove("a/b")
    for change in (users.remove("a/b"), users.replace("a/b", lambda user: user.credentials)):
        with pytest.raises(UserNotFoundError):
            await change


async def test_a_bad_name_is_refused_before_anything_is_read(
    users: UserStore, faults: ScriptedFaults
) -> None:
    for call in (users.get("\n"), users.add("", [OLD]), users.alter("a\0", [], [OLD])):
        with pytest.raises(InvalidUserNameError):
            await call
    with pytest.raises(InvalidUserNameError):
        await users.remove("x" * 256)
    assert faults.writes == []


async def test_users_are_listed_in_pages(users: UserStore) -> None:
    names = [f"user-{number:03}" for number in range(READS_AT_ONCE_MAX + 3)]
    for name in names:
        await users.add(name, [OLD])
    pages = [page async for page in users.pages()]
    assert [len(page) for page in pages] == [READS_AT_ONCE_MAX, 3]
    assert [user.name for page in pages for user in page] == names == await users.names()


async def test_there_are_at_most_so_many_users(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    users = UserStore(store, rng, users_max=2)
    await users.add("a", [OLD])
    await users.add("b", [OLD])
    with pytest.raises(TooManyUsersError, match="has 2 users"):
        await users.add("c", [OLD])
    await users.alter("b", [], [NEW])
    await users.remove("a")
    await users.add("c", [OLD])
    assert await users.names() == ["b", "c"]


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_a_write_with_an_unknown_outcome_is_decided(
    users: UserStore, faults: ScriptedFaults, act: str
) -> None:
    faults.acts = [act]
    await users.add("a", [OLD])
    faults.acts = [act]
    await users.alter("a", [], [NEW])
    assert await users.get("a") == user_of("a", [NEW])
    faults.acts = [act]
    await users.remove("a")
    assert await users.names() == []


async def test_a_refused_write_is_reported(users: UserStore, faults: ScriptedFaults) -> None:
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await users.add("a", [OLD])
    assert await users.names() == []


async def test_a_conflict_is_read_again(
    users: UserStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    others = UserStore(other_store, rng)
    await users.add("a", [OLD])
    seen: list[UserRecord | None] = []
    path = USER_KIND.path("a")

    def change(user: UserRecord | None) -> UserRecord:
        seen.append(user)
        assert user is not None
        return user_of("a", [*user.credentials, NEW])

    stored = await other_store.get(path)
    await others.alter("a", [], [credential(SHA_512)])
    assert (await other_store.get(path)).version != stored.version
    await users.update("a", change)
    assert seen == [user_of("a", [OLD, credential(SHA_512)])]
    assert (await users.get("a")).mechanisms == (SHA_256, SHA_512)


async def test_what_cannot_be_read_is_not_overwritten(
    users: UserStore, store: MemoryMetadataStore
) -> None:
    await store.create(USER_KIND.path("a"), b"of a newer release")
    for call in (users.get("a"), users.alter("a", [], [NEW]), users.remove("a")):
        with pytest.raises(MetadataFormatError):
            await call
    assert (await store.get(USER_KIND.path("a"))).value == b"of a newer release"
    await store.create(f"{USERS}/another form", b"")
    with pytest.raises(MetadataFormatError):
        await users.names()
