"""Store of the users: one node per user, changed by compare-and-set alone.

Leaves a user and its bytes to `users.py`, and following the users to `user_table.py`.

Invariants: a change is computed from the user that its write replaces; a new read decides a write
with an unknown outcome: it is repeated unless the store shows its result; a user without
credentials has no node.

Source: protocol rules 1.2-1.3; KIP-554.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from random import Random

from metadata.paths import USERS, user_path
from metadata.security.errors import TooManyUsersError, UserExistsError, UserNotFoundError
from metadata.security.users import (
    USERS_MAX,
    UserRecord,
    altered,
    name_of_node,
    node_name,
    pack_user,
    unpack_user,
    user_of,
)
from metadata.store.child_values import READS_AT_ONCE_MAX
from metadata.store.interface import MetadataStore, find
from metadata.store.value_changes import change_node
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism

UserChange = Callable[[UserRecord | None], UserRecord | None]
"""Function that returns the wanted user, from the stored one. None is a user that does not exist.
It is called again after a conflict.
"""


class UserStore:
    """Users of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random, *, users_max: int = USERS_MAX) -> None:
        self._store = store
        self._rng = rng
        self._users_max = users_max

    async def get(self, name: str) -> UserRecord:
        """Read a user with a fresh read. Raises UserNotFoundError, InvalidUserNameError."""
        user = await self._read(name)
        if user is None:
            raise UserNotFoundError(name)
        return user

    async def names(self) -> list[str]:
        """Return the names of all users, sorted, with a fresh read. Raises MetadataError."""
        return sorted(map(name_of_node, await self._store.children(USERS, fresh=True)))

    async def pages(self) -> AsyncIterator[list[UserRecord]]:
        """Yield all users in the order of their names, at most READS_AT_ONCE_MAX at once. A user
        that is created or removed meanwhile is in it or is not. Raises MetadataError.
        """
        names = await self.names()
        for start in range(0, len(names), READS_AT_ONCE_MAX):
            some = names[start : start + READS_AT_ONCE_MAX]
            found = await asyncio.gather(*map(self._read, some))
            yield [user for user in found if user is not None]

    async def add(self, name: str, credentials: Iterable[ScramCredential]) -> None:
        """Create a user. Raises UserExistsError, and as `change` does."""
        new = user_of(name, credentials)

        def change(user: UserRecord | None) -> UserRecord:
            if user is not None:
                raise UserExistsError(name)
            return new

        await self.change(name, change)

    async def replace(
        self, name: str, credentials_of: Callable[[UserRecord], Iterable[ScramCredential]]
    ) -> UserRecord:
        """Replace all credentials of a user; return the user as stored. Raises UserNotFoundError,
        and as `change` does.
        """

        def change(user: UserRecord | None) -> UserRecord:
            if user is None:
                raise UserNotFoundError(name)
            return user_of(name, credentials_of(user))

        wanted = await self.change(name, change)
        assert wanted is not None, "the change returns a user"
        return wanted

    async def alter(
        self,
        name: str,
        deletions: Collection[ScramMechanism],
        upsertions: Sequence[ScramCredential],
    ) -> None:
        """Delete some credentials of a user, and add or replace others, in one write.

        Raises CredentialNotFoundError, and as `change` does.
        """
        await self.change(name, lambda user: altered(name, user, deletions, upsertions))

    async def remove(self, name: str) -> None:
        """Remove a user. Raises UserNotFoundError, and as `change` does."""

        def change(user: UserRecord | None) -> None:
            if user is None:
                raise UserNotFoundError(name)

        await self.change(name, change)

    async def change(self, name: str, change: UserChange) -> UserRecord | None:
        """Change, create or remove a user; return it as stored.

        Repeats until the outcome is certain or the call is cancelled; a cancelled call may have
        been applied, or may still be. Raises what `change` raises, InvalidUserNameError,
        TooManyUsersError, StoreUnavailableError when nothing was written, and the last error after
        many attempts.
        """
        path = user_path(node_name(name))

        def changed(value: bytes | None) -> bytes | None:
            wanted = change(None if value is None else unpack_user(path, value))
            return None if wanted is None else pack_user(path, wanted)

        value = await change_node(
            self._store, path, changed, self._rng, check_room=self._check_room
        )
        return None if value is None else unpack_user(path, value)

    async def _read(self, name: str) -> UserRecord | None:
        path = user_path(node_name(name))
        stored = await find(self._store, path)
        return None if stored is None else unpack_user(path, stored.value)

    async def _check_room(self) -> None:
        if len(await self._store.children(USERS, fresh=True)) >= self._users_max:
            raise TooManyUsersError(self._users_max)
