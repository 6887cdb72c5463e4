"""Reads and writes of a gateway's clients, each decided before it is sent.

Invariants: a write is decided on the values at the versions that it names, or that its checks do;
what a decision needs is read again, after a fresh read, before anything is refused; the rights that
decide are those after these reads; a write is sent at most once, in one multi with its checks.

Source: docs/security.md, "A gateway for clients".
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from metadata.errors import MetadataError, OutcomeUnknownError, StoreUnavailableError
from metadata.gateway.codec import packed_names, packed_stored
from metadata.gateway.errors import GatewayRefusedError
from metadata.gateway.messages import Children, CreateNode, Get, Multi
from metadata.ids import Version
from metadata.msgpack_fields import Packed
from metadata.paths import CHAINS, LEDGERS, LEVEL_DIGITS
from metadata.security.ledger_roles import GrantedRights
from metadata.store.interface import (
    Create,
    Delete,
    MetadataStore,
    Operation,
    find,
)
from quire.gateway.limits import GatewayLimits
from quire.gateway.rights.decisions import decide_read, decide_writes, needed_for
from quire.gateway.rights.verdict import (
    Allowed,
    Impossible,
    Known,
    Needed,
    Refused,
    Subject,
    Verdict,
)
from quire.gateway.sessions import ClientSession

READS_MAX: Final = 3
"""Maximum number of reads of chains that are created or removed meanwhile."""
VALUES_MAX: Final = 16
"""Maximum number of writes to one ephemeral node whose outcomes are unknown."""

MetadataRequest = Get | Children | CreateNode | Multi


class MetadataRequests:
    """Serves requests on the store of one gateway."""

    def __init__(
        self,
        store: MetadataStore,
        granted_to: Callable[[str], GrantedRights],
        super_users: Sequence[str],
        limits: GatewayLimits,
        name: str,
    ) -> None:
        """`granted_to` returns the grants of a principal; `name` is the gateway's, for messages."""
        self._store = store
        self._granted_to = granted_to
        self._super_users = frozenset(super_users)
        self._limits = limits
        self._name = name

    def subject(self, session: ClientSession) -> Subject:
        """Return the client of a session, with its rights now."""
        principal = session.principal
        return Subject(
            principal,
            is_super=principal in self._super_users,
            granted=self._granted_to(principal),
            has_ephemeral=session.ephemerals.has,
            has_id=session.ids.has,
        )

    def check_read(self, session: ClientSession, path: str) -> None:
        """Raise GatewayRefusedError if a client may not read a node."""
        refused = decide_read(self.subject(session), path)
        if refused is not None:
            raise self._error(refused)

    async def serve(self, session: ClientSession, request: MetadataRequest) -> Packed:
        """Return the result of a request. Raises MetadataError."""
        match request:
            case Get(path, fresh, agreed):
                self.check_read(session, path)
                return packed_stored(await self._store.get(path, fresh=fresh, agreed=agreed))
            case Children(path, fresh, agreed):
                self.check_read(session, path)
                names = await self._store.children(path, fresh=fresh, agreed=agreed)
                return packed_names(names)
            case CreateNode(operation, make_parents):
                return list[Packed](
                    await self._write(session, [operation], make_parents=make_parents)
                )
            case Multi(operations):
                return list[Packed](await self._write(session, operations, make_parents=False))

    async def _write(
        self, session: ClientSession, operations: Sequence[Operation], *, make_parents: bool
    ) -> list[Version]:
        allowed = await self._allowed(session, operations)
        self._check_room(session, operations)  # of its requests, none is sent in between
        sent = session.ephemerals.begin(operations)
        try:
            versions = await self._send(operations, allowed, make_parents=make_parents)
        except OutcomeUnknownError:
            raise  # the values may be there
        except MetadataError:
            session.ephemerals.note_failed(sent)
            raise
        session.ephemerals.note_done(sent)
        if allowed.block is not None:
            session.ids.add(allowed.block)
        return versions

    async def _send(
        self, operations: Sequence[Operation], allowed: Allowed, *, make_parents: bool
    ) -> list[Version]:
        (first, *others) = operations
        if make_parents and isinstance(first, Create) and not (others or allowed.pins):
            made = self._store.create(first.path, first.value, ephemeral=first.ephemeral)
            return [await made]
        sent = [*allowed.pins, *operations, *allowed.added]
        versions = await self._store.multi(sent)
        start = len(allowed.pins)
        return versions[start : start + len(operations)]

    # -- decisions

    async def _allowed(self, session: ClientSession, operations: Sequence[Operation]) -> Allowed:
        known = Known() if self.subject(session).is_super else await self._read(operations)
        verdict: Verdict = decide_writes(self.subject(session), operations, known)
        if not isinstance(verdict, Allowed):
            await self._store.get("/", fresh=True)  # later reads see what was written before it
            known = await self._read(operations)
            verdict = decide_writes(self.subject(session), operations, known)
        match verdict:
            case Allowed():
                return verdict
            case Impossible(error):
                raise error
            case Refused():
                raise self._error(verdict)

    async def _read(self, operations: Sequence[Operation]) -> Known:
        """Read what the decision needs. The names of a chain's life come first: while they hold, so
        does what was read after them. A chain without such names is read until it stays so.
        """
        needed = needed_for(operations)
        names = await self._names(needed)
        for _ in range(READS_MAX):
            values = await asyncio.gather(
                *(find(self._store, value, fresh=False) for value in needed.values)
            )
            again = names if all(names) else await self._names(needed)
            if again == names:
                return Known(
                    dict(zip(needed.values, values, strict=True)),
                    dict(zip(needed.names, names, strict=True)),
                )
            names = again
        why = f"its chains changed during {READS_MAX} reads: try again"
        raise StoreUnavailableError(self._name, why)

    async def _names(self, needed: Needed) -> list[list[str]]:
        return await asyncio.gather(*map(self._store.children, needed.names))

    def _error(self, refused: Refused) -> GatewayRefusedError:
        return GatewayRefusedError(refused.path, self._name, refused.why)

    # -- ephemeral nodes

    def _check_room(self, session: ClientSession, operations: Sequence[Operation]) -> None:
        """Bound the ephemeral nodes of a session, and the values that each may have."""
        count = len(session.ephemerals)
        for operation in operations:
            count += isinstance(operation, Create) and operation.ephemeral
            if count > max(len(session.ephemerals), self._limits.ephemerals_max):
                why = f"a session has at most {self._limits.ephemerals_max} ephemeral nodes"
                raise GatewayRefusedError(operation.path, self._name, why)
            if session.ephemerals.uncertain(operation.path) >= VALUES_MAX:
                why = f"the outcomes of {VALUES_MAX} writes to it are unknown: begin a new session"
                raise GatewayRefusedError(operation.path, self._name, why)


def deleted_paths(request: MetadataRequest) -> list[str]:
    """Return the paths of the ledgers and chains that a request deletes, without their parts."""
    if not isinstance(request, Multi):
        return []
    return [
        operation.path
        for operation in request.operations
        if isinstance(operation, Delete) and _is_whole(operation.path)
    ]


def _is_whole(path: str) -> bool:
    """Return whether a path is that of a ledger or of a chain."""
    _, area, *names = path.split("/")
    if f"/{area}" == LEDGERS:
        return len(names) == len(LEVEL_DIGITS)
    return f"/{area}" == CHAINS and len(names) == 1
