"""Contract of the metadata of users, as one suite that runs on each metadata store.

Leaves creating stores, and ending their sessions, to the `StoreService` of the implementation.
"""

import asyncio
from random import Random

import pytest

from metadata.security.errors import UserExistsError, UserNotFoundError
from metadata.security.user_store import UserStore, UserTable
from quire.identity.sasl.credentials import ScramMechanism
from tests.contracts.store_service import StoreService, eventually
from tests.support.metadata.users import credential

RNG_SEED = 7
SHA_256, SHA_512 = ScramMechanism
NAMES = ("alice", "..", "a/b", "zookeeper", "100%", "grüße", "\U0001f600" * 255)


class UserMetadataContract:
    """Tests to inherit in a class with a `service` fixture."""

    async def test_users_reach_all_and_go(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        users = UserStore(await service.connect(), rng)
        table = UserTable(await service.connect(), rng)
        await table.start()
        for name in NAMES:
            await users.add(name, [credential(SHA_256, 1)])
        assert await users.names() == sorted(NAMES)
        await eventually(lambda: sorted(table.users) == sorted(NAMES))
        await users.remove("..")
        await users.alter("a/b", [SHA_256], [credential(SHA_512, 2)])
        await eventually(lambda: ".." not in table.users)
        await eventually(lambda: table.find("a/b", SHA_512) == credential(SHA_512, 2))
        assert table.find("a/b", SHA_256) is None
        await table.aclose()

    async def test_one_of_many_creations_wins(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        stores = [UserStore(await service.connect(), rng) for _ in range(2)]
        done = await asyncio.gather(
            *[stores[i % 2].add("a", [credential(SHA_256, i)]) for i in range(6)],
            return_exceptions=True,
        )
        assert sum(isinstance(exception, UserExistsError) for exception in done) == 5
        winner = next(i for i, exception in enumerate(done) if exception is None)
        assert (await stores[0].get("a")).credentials == (credential(SHA_256, winner),)

    async def test_changes_at_once_keep_each_other(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        one, other = [UserStore(await service.connect(), rng) for _ in range(2)]
        await asyncio.gather(
            *[one.alter("a", [], [credential(SHA_256, i)]) for i in range(5)],
            *[other.alter("a", [], [credential(SHA_512, i)]) for i in range(5)],
        )
        assert (await one.get("a")).mechanisms == (SHA_256, SHA_512)
        removals = await asyncio.gather(one.remove("a"), other.remove("a"), return_exceptions=True)
        assert sum(isinstance(removal, UserNotFoundError) for removal in removals) == 1
        with pytest.raises(UserNotFoundError):
            await one.get("a")

    async def test_an_expired_session_follows_again(self, service: StoreService) -> None:
        rng = Random(RNG_SEED)
        users, followed = UserStore(await service.connect(), rng), await service.connect()
        await users.add("a", [credential(SHA_256, 1)])
        table = UserTable(followed, rng)
        gone: list[str] = []
        table.on_revocation(lambda name, _: gone.append(name))
        await table.start()
        await service.expire(followed)
        await users.alter("a", [], [credential(SHA_256, 2)])
        await eventually(lambda: table.find("a", SHA_256) == credential(SHA_256, 2))
        assert gone == ["a"]
        await table.aclose()
