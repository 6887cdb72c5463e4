"""Users in the memory of a server, followed.

Leaves changes to `user_store.py`, following the nodes to `metadata.store.child_values`, and closing
connections to the owner of the connections.

Invariants: the table keeps what it has while the store does not answer; a user is dropped only when
a successful read shows that it is gone; a user whose record cannot be read keeps its last readable
credentials. Each credential that is gone or replaced is reported once.

Source: protocol rule 1.6; KIP-554.
"""

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

from metadata.callbacks import Callbacks
from metadata.errors import MetadataFormatError
from metadata.paths import USERS, user_path
from metadata.security.users import UserRecord, name_of_node, revoked, unpack_user
from metadata.store.child_values import ChildValues
from metadata.store.interface import Cancel, MetadataStore
from quire.identity.sasl.credential_forms import CredentialForms
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism

RevocationCallback = Callable[[str, frozenset[ScramMechanism]], None]
"""Takes the name of a user, and the mechanisms whose old credential no longer holds."""


class UserTable:
    """All users, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._users: dict[str, UserRecord] = {}
        self.forms = CredentialForms()
        """Forms of the users' credentials, for the decoys of unknown users."""
        self._callbacks = Callbacks[str, frozenset[ScramMechanism]]()
        self._values = ChildValues(store, USERS, rng, on_value=self._put, on_gone=self._drop)

    @property
    def users(self) -> Mapping[str, UserRecord]:
        """The users by name, as last read."""
        return MappingProxyType(self._users)

    def find(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's credential as last read; None if there is none. It does not wait."""
        user = self._users.get(name)
        return None if user is None else user.find(mechanism)

    def on_revocation(self, callback: RevocationCallback) -> Cancel:
        """Call back after each credential that is gone or replaced, once `find` shows it. A new
        user, or a credential of another mechanism, is not reported.
        """
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every user, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current users. Raises MetadataError."""
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `find` keeps the last known users."""
        await self._values.aclose()

    def _put(self, node: str, value: bytes) -> None:
        name = name_of_node(node)
        path = user_path(node)
        user = unpack_user(path, value)
        if user.name != name:
            raise MetadataFormatError(path, "it describes another user")
        before = self._users.get(name)
        self._users[name] = user
        self._report(before, user)

    def _drop(self, node: str) -> None:
        self._report(self._users.pop(name_of_node(node), None), None)

    def _report(self, before: UserRecord | None, after: UserRecord | None) -> None:
        self.forms.change(before.credentials if before else (), after.credentials if after else ())
        gone = frozenset() if before is None else revoked(before, after)
        if before is not None and gone:
            self._callbacks.notify(before.name, gone)
