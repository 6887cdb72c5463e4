"""Roles on ledgers over a metadata service in memory, and clients with principals.

Leaves certificates to the tests with real processes: here a test says who the next client is.
"""

import asyncio
from random import Random

from bookie.server.access import AuthorizerMode, LedgerAuthorizer, RoleOptions
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.security.grant_store import GrantStore, GrantTable
from metadata.security.ledger_roles import LedgerGrant, LedgerRole, parse_resource
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_faults import NoFaults
from quire.server.overriding import override

RNG_SEED = 5


class NamingAuthorizer(LedgerAuthorizer):
    """An authorizer for which a test names the principal of the next client."""

    next_principal = ""

    @override
    def principal_of(self, transport: asyncio.BaseTransport) -> str:
        return self.next_principal


class RolesSetting:
    """Metadata of a cluster, and the authorizer of one bookie."""

    def __init__(
        self,
        faults: NoFaults | None = None,
        mode: AuthorizerMode = AuthorizerMode.ENFORCE,
        *super_users: str,
    ) -> None:
        self.server = MemoryMetadataServer(faults=faults or NoFaults())
        self.store = MemoryMetadataStore(self.server)
        self.own = MemoryMetadataStore(self.server)
        """Session of the bookie."""
        self.rng = Random(RNG_SEED)
        self.ledgers = LedgerStore(self.store, self.rng, lambda: 0)
        self.grants = GrantStore(self.store, self.rng)
        self.authorizer = NamingAuthorizer(
            LedgerStore(self.own, self.rng, lambda: 0),
            GrantTable(self.own, self.rng),
            self.rng,
            RoleOptions(mode, (), super_users),
        )

    async def create(self, metadata: LedgerMetadata) -> LedgerId:
        """Store a ledger's metadata."""
        await self.ledgers.create(metadata)
        return metadata.ledger_id

    async def grant(self, principal: str, role: LedgerRole, ledgers: str) -> None:
        """Give a role."""
        await self.grants.add(principal, LedgerGrant(role, parse_resource(ledgers)))

    async def revoke(self, principal: str, role: LedgerRole, ledgers: str) -> None:
        """Take a role away."""
        await self.grants.remove(principal, LedgerGrant(role, parse_resource(ledgers)))
