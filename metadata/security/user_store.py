"""Users: one node per user, changed by compare-and-set alone, and followed by servers.

Leaves a user to `users.py`, storing and following records to `metadata.store.records`, and closing
connections to the owner of the connections.

Invariants: a user without credentials has no node. Each credential that is gone or replaced is
reported once.

Source: protocol rules 1.2-1.3 and 1.6; KIP-554.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from metadata.paths import USERS
from metadata.security.errors import TooManyUsersError, UserExistsError, UserNotFoundError
from metadata.security.users import (
    USER_CODEC,
    USERS_MAX,
    UserRecord,
    altered,
    name_of_node,
    node_name,
    revoked,
    user_of,
)
from metadata.store.interface import Cancel, MetadataStore
from metadata.store.records import NodeNames, RecordKind, RecordStore, RecordView
from quire.identity.sasl.credentials import CredentialForms, ScramCredential, ScramMechanism

RevocationCallback = Callable[[str, frozenset[ScramMechanism]], None]
"""Takes the name of a user, and the mechanisms whose old credential no longer holds."""

USER_KIND: Final = RecordKind[str, UserRecord](
    USERS,
    NodeNames(node_name, name_of_node),
    USER_CODEC,
    key_field="name",
    too_many=TooManyUsersError,
)


class UserStore(RecordStore[str, UserRecord]):
    """Users of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random, *, users_max: int = USERS_MAX) -> None:
        super().__init__(USER_KIND, store, rng, users_max)

    async def get(self, name: str) -> UserRecord:
        """Read a user with a fresh read. Raises UserNotFoundError, InvalidUserNameError."""
        user = await self.find(name)
        if user is None:
            raise UserNotFoundError(name)
        return user

    async def names(self) -> list[str]:
        """Return the names of all users, sorted, with a fresh read. Raises MetadataError."""
        return sorted(await self.keys())

    async def add(self, name: str, credentials: Iterable[ScramCredential]) -> None:
        """Create a user. Raises UserExistsError, and as `update` does."""
        new = user_of(name, credentials)

        def change(user: UserRecord | None) -> UserRecord:
            if user is not None:
                raise UserExistsError(name)
            return new

        await self.update(name, change)

    async def replace(
        self, name: str, credentials_of: Callable[[UserRecord], Iterable[ScramCredential]]
    ) -> UserRecord:
        """Replace all credentials of a user; return the user as stored. Raises UserNotFoundError,
        and as `update` does.
        """

        def change(user: UserRecord | None) -> UserRecord:
            if user is None:
                raise UserNotFoundError(name)
            return user_of(name, credentials_of(user))

        wanted = await self.update(name, change)
        assert wanted is not None, "the change returns a user"
        return wanted

    async def alter(
        self,
        name: str,
        deletions: Collection[ScramMechanism],
        upsertions: Sequence[ScramCredential],
    ) -> None:
        """Delete some credentials of a user, and add or replace others, in one write.

        Raises CredentialNotFoundError, and as `update` does.
        """
        await self.update(name, lambda user: altered(name, user, deletions, upsertions))

    async def remove(self, name: str) -> None:
        """Remove a user. Raises UserNotFoundError, and as `update` does."""

        def change(user: UserRecord | None) -> None:
            if user is None:
                raise UserNotFoundError(name)

        await self.update(name, change)


class UserTable(RecordView[str, UserRecord]):
    """All users in the memory of a server, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(USER_KIND, store, rng)
        self.forms = CredentialForms()
        """Forms of the users' credentials, for the decoys of unknown users."""
        self.on_record(self._note_forms)

    @property
    def users(self) -> Mapping[str, UserRecord]:
        """The users by name, as last read."""
        return self.records

    def find(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's credential as last read; None if there is none. It does not wait."""
        user = self.records.get(name)
        return None if user is None else user.find(mechanism)

    def on_revocation(self, callback: RevocationCallback) -> Cancel:
        """Call back after each credential that is gone or replaced, once `find` shows it. A new
        user, or a credential of another mechanism, is not reported.
        """

        def note(name: str, before: UserRecord | None, after: UserRecord | None) -> None:
            gone = frozenset() if before is None else revoked(before, after)
            if gone:
                callback(name, gone)

        return self.on_record(note)

    def _note_forms(self, _name: str, before: UserRecord | None, after: UserRecord | None) -> None:
        self.forms.change(before.credentials if before else (), after.credentials if after else ())
