"""Store of the grants on ledgers: one node per principal, changed by compare-and-set alone.

Leaves the grants and their bytes to `ledger_grants.py`, and following them to `grant_table.py`.

Invariants: a change is computed from the grants that its write replaces; a new read decides a write
with an unknown outcome: it is repeated unless the store shows its result; a principal without
grants has no node.

Source: protocol rules 1.2-1.3, 12.3.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

from metadata.paths import LEDGER_GRANTS, ledger_grant_path
from metadata.security.errors import GrantNotFoundError, TooManyPrincipalsError
from metadata.security.ledger_grants import (
    PRINCIPALS_MAX,
    GrantRecord,
    grant_node,
    grants_of,
    pack_grants,
    principal_of_node,
    unpack_grants,
)
from metadata.security.ledger_roles import LedgerGrant
from metadata.store.child_values import READS_AT_ONCE_MAX
from metadata.store.interface import MetadataStore, find
from metadata.store.value_changes import change_node

_Grants = frozenset[LedgerGrant]


class GrantStore:
    """Grants of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(
        self, store: MetadataStore, rng: Random, *, principals_max: int = PRINCIPALS_MAX
    ) -> None:
        self._store = store
        self._rng = rng
        self._principals_max = principals_max

    async def get(self, principal: str) -> frozenset[LedgerGrant]:
        """Read a principal's grants with a fresh read. Raises InvalidGrantError."""
        record = await self._read(principal)
        return frozenset(() if record is None else record.grants)

    async def pages(self) -> AsyncIterator[list[GrantRecord]]:
        """Yield all records in the order of their principals, at most READS_AT_ONCE_MAX at once.
        Raises MetadataError.
        """
        nodes = await self._store.children(LEDGER_GRANTS, fresh=True)
        principals = sorted(map(principal_of_node, nodes))
        for start in range(0, len(principals), READS_AT_ONCE_MAX):
            some = principals[start : start + READS_AT_ONCE_MAX]
            found = await asyncio.gather(*map(self._read, some))
            yield [record for record in found if record is not None]

    async def add(self, principal: str, grant: LedgerGrant) -> None:
        """Add a grant; one that exists stays. Raises TooManyGrantsError, TooManyPrincipalsError,
        and as `_change` does.
        """
        await self._change(principal, lambda grants: grants | {grant})

    async def remove(self, principal: str, grant: LedgerGrant) -> None:
        """Remove a grant. Raises GrantNotFoundError, and as `_change` does."""

        def change(grants: _Grants) -> _Grants:
            if grant not in grants:
                raise GrantNotFoundError(principal, grant.role, grant.resource.text)
            return grants - {grant}

        await self._change(principal, change)

    async def _change(self, principal: str, change: Callable[[_Grants], _Grants]) -> None:
        """Change the grants of a principal.

        Repeats until the outcome is certain or the call is cancelled; a cancelled call may have
        been applied, or may still be. Raises what `change` raises, InvalidGrantError,
        StoreUnavailableError when nothing was written, and the last error after many
        attempts.
        """
        path = ledger_grant_path(grant_node(principal))

        def changed(value: bytes | None) -> bytes | None:
            grants = () if value is None else unpack_grants(path, value).grants
            wanted = grants_of(principal, change(frozenset(grants)))
            return None if wanted is None else pack_grants(path, wanted)

        await change_node(self._store, path, changed, self._rng, check_room=self._check_room)

    async def _read(self, principal: str) -> GrantRecord | None:
        path = ledger_grant_path(grant_node(principal))
        stored = await find(self._store, path)
        return None if stored is None else unpack_grants(path, stored.value)

    async def _check_room(self) -> None:
        if len(await self._store.children(LEDGER_GRANTS, fresh=True)) >= self._principals_max:
            raise TooManyPrincipalsError(self._principals_max)
