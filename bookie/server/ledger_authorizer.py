"""Rights of clients on ledgers, from the ledgers' metadata and the grants.

Leaves roles to `metadata.security.ledger_roles`, the grants to `metadata.security.grant_table`, and
the ledgers that one connection has attached to `bookie.server.attachments`.

Invariants: facts about a ledger come from its metadata and do not change while it exists, so they
are read once; at most READS_AT_ONCE_MAX reads run at a time, of one principal at most
READS_OF_PRINCIPAL_MAX, each at most READ_S_MAX; principals that wait take turns; a ledger counts as
missing only after an agreed read; without an answer nothing is decided.

Source: protocol rules 1.6, 12.1, 12.4, 12.5 and 12.6.
"""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import MetadataError, NodeNotFoundError, StoreUnavailableError
from metadata.ids import LedgerId
from metadata.ledgers.chain import CHAIN_NAME
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.security.client_principals import certified_principal
from metadata.security.grant_table import GrantTable
from metadata.security.ledger_roles import EVERY_RIGHT, LedgerFacts, rights_of
from metadata.store.interface import MetadataStore
from quire.identity.certificate_names import MappingRule
from quire.identity.fair_queue import FairQueue, QueueFullError

READS_AT_ONCE_MAX: Final = 32
READS_OF_PRINCIPAL_MAX: Final = 16
READS_WAITING_MAX: Final = 10_000
"""Maximum number of reads of one principal that wait; more are not begun."""
MISSED_S: Final = 0.05
"""How long a read that finds no ledger keeps its place after the answer, in seconds: so the agreed
reads of one principal for ledgers that do not exist are at most 320 in a second.
"""
READ_S_MAX: Final = 5.0
"""Maximum time that requests wait for the facts about one ledger, in seconds, with the wait for
other reads.
"""
FACTS_MAX: Final = 100_000
"""Maximum number of ledgers whose facts are kept; the oldest are dropped."""


class AuthorizerMode(StrEnum):
    """What a bookie does with the principals of its clients."""

    OFF = "off"
    RECORD = "record"
    """Say them, so that new ledgers have owners; refuse nothing."""
    ENFORCE = "enforce"
    """Refuse what no role allows."""


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """What a bookie does with the principals of its clients."""

    mode: AuthorizerMode = AuthorizerMode.OFF
    rules: tuple[MappingRule, ...] = ()
    """Rules for the principals of certificates."""
    super_users: tuple[str, ...] = ()
    """Principals that may do everything."""

    @property
    def changers(self) -> frozenset[str] | None:
        """Principals that may change the bookie by its admin port; None: every client."""
        return frozenset(self.super_users) if self.mode is AuthorizerMode.ENFORCE else None


class FactsUnavailableError(Exception):
    """The metadata service did not answer in time, or the metadata cannot be read."""


class LedgerAuthorizer:
    """Rights of the clients of one bookie, from `start` to `aclose`."""

    def __init__(
        self,
        ledgers: LedgerStore,
        grants: GrantTable,
        rng: Random,
        options: RoleOptions,
    ) -> None:
        mode = options.mode
        assert mode is not AuthorizerMode.OFF, "a bookie without roles has no authorizer"
        self._ledgers = ledgers
        self._grants = grants
        self._rng = rng
        self._is_enforcing = mode is AuthorizerMode.ENFORCE
        self._rules = options.rules
        self._super_users = frozenset(options.super_users)
        self._facts: dict[LedgerId, LedgerFacts] = {}
        self._reads = FairQueue(READS_AT_ONCE_MAX, READS_OF_PRINCIPAL_MAX, READS_WAITING_MAX)
        self.waiting_bytes = 0
        """Bytes of adds that wait until the rights of their clients are known."""
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._cancel = grants.on_change(self._note_change)

    async def start(self) -> None:
        """Read the grants, and keep them up to date. Raises StoreUnavailableError."""
        if self._is_enforcing:
            await self._grants.start()

    async def aclose(self) -> None:
        """Stop following the grants."""
        self._cancel()
        await self._grants.aclose()

    def principal_of(self, transport: asyncio.BaseTransport) -> str:
        """Return the principal of a connection's client; empty if it proved none."""
        return certified_principal(transport.get_extra_info("peercert"), self._rules)

    def is_exempt(self, principal: str) -> bool:
        """Return whether nothing is refused to a principal."""
        return not self._is_enforcing or principal in self._super_users

    def known_facts(self, ledger_id: LedgerId) -> LedgerFacts | None:
        """Return the facts about a ledger, if they were read before."""
        return self._facts.get(ledger_id)

    async def read_facts(
        self, ledger_id: LedgerId, principal: str, end_s: float | None = None
    ) -> LedgerFacts | None:
        """Return the facts about a ledger for a principal that asks; None if it does not exist.
        Without `end_s`, a time of the loop, it takes at most READ_S_MAX. Raises
        FactsUnavailableError.
        """
        if end_s is None:
            end_s = asyncio.get_running_loop().time() + READ_S_MAX
        try:
            async with asyncio.timeout_at(end_s), self._reads.place(principal) as place:
                metadata = await self._read(ledger_id)
                if metadata is None:
                    place.kept_s = MISSED_S
        except TimeoutError:
            why = f"the metadata service did not answer within {READ_S_MAX:g} s"
            raise FactsUnavailableError(why) from None
        except (MetadataError, QueueFullError) as error:
            raise FactsUnavailableError(str(error)) from error
        if metadata is None:
            return None
        chain = metadata.custom.get(CHAIN_NAME, "")
        facts = LedgerFacts(ledger_id, metadata.owner, chain if isinstance(chain, str) else "")
        if len(self._facts) >= FACTS_MAX:
            del self._facts[next(iter(self._facts))]
        self._facts[ledger_id] = facts
        return facts

    def rights(self, principal: str, facts: LedgerFacts) -> int:
        """Return the rights of a principal on a ledger, as bits."""
        if self.is_exempt(principal):
            return int(EVERY_RIGHT)
        return int(rights_of(principal, self._grants.granted_to(principal), facts))

    async def wait_for_changes(self) -> tuple[str, ...]:
        """Wait until grants change; return their principals."""
        await self._wake.wait()
        self._wake.clear()
        changed, self._changed = tuple(self._changed), {}
        return changed

    async def _read(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        backoff = Backoff(self._rng)
        while True:
            try:
                return await self._read_once(ledger_id)
            except StoreUnavailableError:
                await asyncio.sleep(backoff.next_s())

    async def _read_once(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        # An owner never changes, so an older answer is as good; only a new ledger may be unknown.
        try:
            return (await self._ledgers.get(ledger_id))[0]
        except NodeNotFoundError:
            pass
        try:
            return (await self._ledgers.get(ledger_id, agreed=True))[0]
        except NodeNotFoundError:
            return None

    def _note_change(self, principal: str) -> None:
        self._changed[principal] = None
        self._wake.set()


def make_authorizer(
    ledgers: LedgerStore, store: MetadataStore, rng: Random, options: RoleOptions
) -> LedgerAuthorizer | None:
    """Return the authorizer of a bookie; None if its clients need no roles."""
    if options.mode is AuthorizerMode.OFF:
        return None
    return LedgerAuthorizer(ledgers, GrantTable(store, rng), rng, options)
