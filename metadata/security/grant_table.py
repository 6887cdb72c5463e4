"""Grants on ledgers in the memory of a bookie, followed.

Leaves changes to `grant_store.py`, following the nodes to `metadata.store.child_values`, and
attached ledgers to `bookie.server.access`.

Invariants: the table keeps what it has while the store does not answer; grants are dropped only
when a successful read shows that they are gone; a record that cannot be read leaves the last
readable grants in use.

Source: protocol rules 1.6, 12.5.
"""

from collections.abc import Callable
from random import Random

from metadata.callbacks import Callbacks
from metadata.errors import MetadataFormatError
from metadata.paths import LEDGER_GRANTS, ledger_grant_path
from metadata.security.ledger_grants import principal_of_node, unpack_grants
from metadata.security.ledger_roles import NO_GRANTS, GrantedRights
from metadata.store.child_values import ChildValues
from metadata.store.interface import Cancel, MetadataStore

ChangeCallback = Callable[[str], None]
"""Takes the principal whose grants changed."""


class GrantTable:
    """All grants, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._granted: dict[str, GrantedRights] = {}
        self._callbacks = Callbacks[str]()
        self._values = ChildValues(
            store, LEDGER_GRANTS, rng, on_value=self._put, on_gone=self._drop
        )

    def granted_to(self, principal: str) -> GrantedRights:
        """Return the grants of a principal, as last read. It does not wait."""
        return self._granted.get(principal, NO_GRANTS)

    def on_change(self, callback: ChangeCallback) -> Cancel:
        """Call back after each change, once `granted_to` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every grant, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def aclose(self) -> None:
        """Stop following; `granted_to` keeps the last known grants."""
        await self._values.aclose()

    def _put(self, node: str, value: bytes) -> None:
        path = ledger_grant_path(node)
        record = unpack_grants(path, value)
        if record.principal != principal_of_node(node):
            raise MetadataFormatError(path, "it describes another principal")
        self._granted[record.principal] = GrantedRights(record.grants)
        self._callbacks.notify(record.principal)

    def _drop(self, node: str) -> None:
        principal = principal_of_node(node)
        if self._granted.pop(principal, None) is not None:
            self._callbacks.notify(principal)
