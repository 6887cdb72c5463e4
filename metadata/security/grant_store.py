"""Grants on ledgers: one node per principal, changed by compare-and-set, and followed by bookies.

Leaves the grants to `ledger_grants.py`, storing and following records to `metadata.store.records`,
and attached ledgers to `bookie.server.access`.

Invariant: a principal without grants has no node.

Source: protocol rules 1.2-1.3, 12.3 and 12.5.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from metadata.paths import LEDGER_GRANTS
from metadata.security.errors import GrantNotFoundError, TooManyPrincipalsError
from metadata.security.ledger_grants import (
    GRANTS_CODEC,
    PRINCIPALS_MAX,
    GrantRecord,
    grant_node,
    grants_of,
    principal_of_node,
)
from metadata.security.ledger_roles import NO_GRANTS, GrantedRights, LedgerGrant
from metadata.store.interface import MetadataStore
from metadata.store.records import NodeNames, RecordKind, RecordStore, RecordView

_Grants = frozenset[LedgerGrant]

GRANTS_KIND: Final = RecordKind[str, GrantRecord](
    LEDGER_GRANTS,
    NodeNames(grant_node, principal_of_node),
    GRANTS_CODEC,
    key_field="principal",
    too_many=TooManyPrincipalsError,
)


class GrantStore(RecordStore[str, GrantRecord]):
    """Grants of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(
        self, store: MetadataStore, rng: Random, *, principals_max: int = PRINCIPALS_MAX
    ) -> None:
        super().__init__(GRANTS_KIND, store, rng, principals_max)

    async def get(self, principal: str) -> _Grants:
        """Read a principal's grants with a fresh read. Raises InvalidGrantError."""
        record = await self.find(principal)
        return frozenset(() if record is None else record.grants)

    async def add(self, principal: str, grant: LedgerGrant) -> None:
        """Add a grant; one that exists stays. Raises TooManyGrantsError, InvalidGrantError, and as
        `update` does.
        """
        await self._change(principal, lambda grants: grants | {grant})

    async def remove(self, principal: str, grant: LedgerGrant) -> None:
        """Remove a grant. Raises GrantNotFoundError, and as `add` does."""

        def change(grants: _Grants) -> _Grants:
            if grant not in grants:
                raise GrantNotFoundError(principal, grant.role, grant.resource.text)
            return grants - {grant}

        await self._change(principal, change)

    async def _change(self, principal: str, change: Callable[[_Grants], _Grants]) -> None:
        await self.update(
            principal,
            lambda record: grants_of(
                principal, change(frozenset(() if record is None else record.grants))
            ),
        )


class GrantTable(RecordView[str, GrantRecord]):
    """All grants in the memory of a bookie, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(GRANTS_KIND, store, rng)
        self._granted: dict[str, GrantedRights] = {}
        self.on_record(self._note)

    def granted_to(self, principal: str) -> GrantedRights:
        """Return the grants of a principal, as last read. It does not wait."""
        return self._granted.get(principal, NO_GRANTS)

    def _note(self, principal: str, _before: GrantRecord | None, after: GrantRecord | None) -> None:
        self._granted.pop(principal, None)
        if after is not None:
            self._granted[principal] = GrantedRights(after.grants)
