"""Who a client is, and what it may do: the key of repair, and roles on ledgers.

Without credentials a client is anonymous, and may do everything except reading the master keys of
ledgers and fencing without one, once it has logged in if it must. The key of repair proves the role
that may, and replaces no login. Leaves logins to `bookie.server.client_logins`, ledger passwords to
the storage, which compares master keys, the key of repair itself to `metadata.repair.repair_key`,
grants and roles to `metadata.security`, and the ledgers that one connection has attached to
`bookie.server.attachments`.

Source: protocol rules 1.6, 2.3, 12.1 and 12.3-12.6; metadata design, "Versions and security".
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Final, NewType

from bookie.server.client_logins import ClientLogins
from metadata.backoff import until_answered
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.chain import CHAIN_NAME
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import REPAIR_KEY
from metadata.security.client_principals import certified_principal
from metadata.security.grant_store import GrantTable
from metadata.security.ledger_roles import (
    EVERY_RIGHT,
    LedgerFacts,
    LedgerRight,
    LedgerRole,
    rights_of,
)
from metadata.store.interface import MetadataStore
from quire.identity.principal import MappingRule
from quire.identity.shares import FairQueue, QueueFullError

Principal = NewType("Principal", str)


ANONYMOUS: Final = Principal("anonymous")
REPAIR: Final = Principal("repair")
KEY_READ_INTERVAL_S: Final = 5.0
"""Minimum time between two reads of the key because of unknown credentials, in seconds."""
KEY_KEPT_S: Final = 60.0
"""How long a key proves the role of repair after it was read, in seconds; then it is read again."""
KEY_READ_S_MAX: Final = 2.0
"""Maximum duration of a read of the key, in seconds."""
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


class LedgerOperation(StrEnum):
    """Operation on a ledger that can be allowed or refused."""

    ADD = "add"
    RECOVERY_ADD = "recovery_add"
    FENCE = "fence"
    READ = "read"
    WRITE_LAC = "write_lac"
    READ_ACCESS = "read_access"
    """Read the ledger's master key."""
    FENCE_WITHOUT_KEY = "fence_without_key"
    """Fence a ledger of which the bookie knows no master key."""


REPAIR_ONLY: Final = (LedgerOperation.READ_ACCESS, LedgerOperation.FENCE_WITHOUT_KEY)
"""Operations that need the key of repair, and no key of the ledger."""


class ServerAccess:
    """Check of the credentials in hellos.

    Invariants: credentials that prove nothing refuse the connection: a client that presents a key
    is never served as an anonymous one; keys are compared in constant time; however many unknown
    keys are presented, the metadata service is read at most once in `KEY_READ_INTERVAL_S`; a key
    that was replaced proves nothing KEY_KEPT_S after that, if the metadata service answers.
    """

    def __init__(
        self,
        read_key: Callable[[], Awaitable[bytes | None]],
        now: Callable[[], float],
        logins: ClientLogins | None = None,
    ) -> None:
        """`read_key` returns the stored key of repair, None if there is none yet. Without `logins`,
        clients do not log in.
        """
        self.logins = logins
        self._read_key = read_key
        self._now = now
        self._key: bytes | None = None
        self._failure = ""
        self._read_at_s = 0.0
        self._next_read_s = 0.0
        self._reading = asyncio.Lock()

    async def start(self) -> None:
        """Read the key of repair. Without an answer, it is read when credentials are presented."""
        async with self._reading:
            await self._read()

    async def learn(self) -> None:
        """Read the key of repair again, unless that was done a moment ago: it may have been created
        after the last read.
        """
        async with self._reading:
            if self._now() >= self._next_read_s:
                self._next_read_s = self._now() + KEY_READ_INTERVAL_S
                await self._read()

    def authenticate(self, credentials: bytes) -> Principal | None:
        """Return the principal that a hello's credentials prove; None if they prove nothing: they
        are wrong, or `learn` must be called first.
        """
        if not credentials:
            return ANONYMOUS
        key = self._key if self._now() - self._read_at_s <= KEY_KEPT_S else None
        is_repair = key is not None and hmac.compare_digest(key, credentials)
        return REPAIR if is_repair else None

    @property
    def refusal(self) -> str:
        """Reason for refusing credentials that prove nothing, and the next step."""
        if self._failure:
            return f"the credentials could not be checked ({self._failure}): try again later"
        if self._key is None:
            return (
                f"the credentials are not known: {REPAIR_KEY} does not exist in this cluster's "
                "metadata, or was created a moment ago; read it and try again"
            )
        return f"the credentials are not the key of repair: read {REPAIR_KEY} of this cluster again"

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(KEY_READ_S_MAX):
                self._key = await self._read_key()
            self._failure = ""
        except MetadataError as error:
            self._failure = str(error)
        except TimeoutError:
            self._failure = f"the metadata service did not answer within {KEY_READ_S_MAX:g} s"
        self._read_at_s = self._now()  # without an answer, the known key is kept


def authorize(principal: Principal, operation: LedgerOperation) -> bool:
    """Return whether the credentials of `principal` are enough for an operation."""
    return operation not in REPAIR_ONLY or principal == REPAIR


RIGHT_FOR: Final[Mapping[LedgerOperation, LedgerRight]] = MappingProxyType(
    {
        LedgerOperation.ADD: LedgerRight.APPEND,
        LedgerOperation.WRITE_LAC: LedgerRight.APPEND,
        LedgerOperation.READ: LedgerRight.READ,
        LedgerOperation.FENCE: LedgerRight.FENCE,
        LedgerOperation.RECOVERY_ADD: LedgerRight.RECOVERY_ADD,
        # The key of repair allows these, and no role does.
        LedgerOperation.READ_ACCESS: LedgerRight.NONE,
        LedgerOperation.FENCE_WITHOUT_KEY: LedgerRight.NONE,
    }
)
# Plain numbers, because operations on members of an enumeration are slow.
RIGHT_BITS: Final[Mapping[LedgerOperation, int]] = MappingProxyType(
    {operation: int(right) for operation, right in RIGHT_FOR.items()}
)
EVERY_BIT: Final = int(EVERY_RIGHT)
READ_BIT: Final = int(LedgerRight.READ)
APPEND_BIT: Final = int(LedgerRight.APPEND)
RECOVERY_ADD_BIT: Final = int(LedgerRight.RECOVERY_ADD)
_WORDS: Final[Mapping[LedgerRight, tuple[str, LedgerRole]]] = MappingProxyType(
    {
        LedgerRight.READ: ("read", LedgerRole.READER),
        LedgerRight.APPEND: ("append to", LedgerRole.WRITER),
        LedgerRight.FENCE: ("fence", LedgerRole.RECOVERER),
        LedgerRight.RECOVERY_ADD: ("add past a fence of", LedgerRole.RECOVERER),
    }
)
"""What a right allows, and the smallest role that includes it."""


def refusal_text(principal: str, operation: LedgerOperation, ledger_id: LedgerId) -> str:
    """Return why a principal may not do an operation, and the next step. An empty principal proved
    nothing.
    """
    verb, role = _WORDS[RIGHT_FOR[operation]]
    if not principal:
        return (
            f"a client without a principal may not {verb} ledger {ledger_id}: connect with a "
            "certificate that the bookie's tls_principal_rules map to a name, or log in, if the"
            " bookie's client_logins are on, with [sasl] in the client's file"
        )
    return (
        f"{principal} may not {verb} ledger {ledger_id}: an administrator can give it the role with"
        f" `quire grant add {principal!r} {role} ledger:{ledger_id}`"
    )


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
    """Rights of the clients of one bookie on ledgers, from `start` to `aclose`: from the ledgers'
    metadata and the grants.

    Invariants: facts about a ledger come from its metadata and do not change while it exists, so
    they are read once; at most READS_AT_ONCE_MAX reads run at a time, of one principal at most
    READS_OF_PRINCIPAL_MAX, each at most READ_S_MAX; principals that wait take turns; a ledger
    counts as missing only after an agreed read; without an answer nothing is decided.
    """

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
        return await until_answered(self._rng, partial(self._read_once, ledger_id))

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
