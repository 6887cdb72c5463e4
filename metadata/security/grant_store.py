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
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
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
from metadata.store.interface import MetadataStore, Stored, find

ATTEMPTS_MAX: Final = 1_000
"""Maximum number of attempts at one change; most attempts fail because another process changed the
same grants.
"""

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
        record, _ = await self._read(principal)
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
            yield [record for record, _ in found if record is not None]

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
        StoreUnavailableError when nothing was written, and the last error after ATTEMPTS_MAX
        attempts.
        """
        path, backoff = ledger_grant_path(grant_node(principal)), Backoff(self._rng)
        is_unknown = False
        wanted: GrantRecord | None = None
        failure: MetadataError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                record, stored = await self._read(principal)
                if is_unknown and record == wanted:
                    return
                grants = change(frozenset(() if record is None else record.grants))
                wanted = grants_of(principal, grants)
                await self._write(path, wanted, stored)
            except OutcomeUnknownError as error:
                is_unknown = True
                failure = error
            except (NodeExistsError, NodeNotFoundError, VersionConflictError) as error:
                failure = error
            except StoreUnavailableError as error:
                if not is_unknown:
                    raise
                failure = error
            else:
                return
            await asyncio.sleep(backoff.next_s())
        assert failure is not None, "every attempt ended with an error"
        raise failure

    async def _read(self, principal: str) -> tuple[GrantRecord | None, Stored | None]:
        path = ledger_grant_path(grant_node(principal))
        stored = await find(self._store, path)
        return (None if stored is None else unpack_grants(path, stored.value)), stored

    async def _write(self, path: str, record: GrantRecord | None, stored: Stored | None) -> None:
        if record is None:
            if stored is not None:
                await self._store.delete(path, stored.version)
            return
        value = pack_grants(path, record)
        if stored is not None:
            if stored.value != value:
                await self._store.compare_and_set(path, value, stored.version)
            return
        if len(await self._store.children(LEDGER_GRANTS, fresh=True)) >= self._principals_max:
            raise TooManyPrincipalsError(self._principals_max)
        await self._store.create(path, value)
