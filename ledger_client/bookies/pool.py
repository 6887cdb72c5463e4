"""Connections of one client to all bookies: one shared connection each, found by bookie id.

Leaves connections to `ledger_client.bookies.pool_link`, and the meaning of the answers to the
protocols.

Invariants: `add` never raises, and its sink is called exactly once, later; calls raise
BookieCallError and nothing else; a ledger's key is kept while any handle of that ledger is
attached.

Source: protocol rules 2.1, 2.3, 4.6; storage design, "The batch".
"""

import asyncio
from collections.abc import Callable, Container, Sequence
from random import Random
from typing import Final, TypeVar

from bookie.wire.batch import Buffer
from bookie.wire.codec import Entries
from bookie.wire.frames import BodyPool
from bookie.wire.messages import (
    LOGIN_DUE,
    WIRE_VERSION,
    WIRE_VERSION_MIN,
    AccessReply,
    EntryRanges,
    FenceWithoutKey,
    Hello,
    HelloReply,
    LacReply,
    ListEntries,
    Ping,
    Pong,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReadRights,
    Refused,
    ReportLac,
    Request,
    RightsReply,
    WaitLac,
)
from ledger_client.bookies.connection import Answer
from ledger_client.bookies.connection_calls import (
    AddSink,
    BookieCallError,
    CallFailure,
    PendingAdd,
    Refusals,
)
from ledger_client.bookies.pool_link import AddressLookup, BookieLink, LinkSettings
from ledger_client.config import ClientConfig
from ledger_client.errors import UnauthorizedError
from ledger_client.observability import Observer
from ledger_client.protocol.suspicion import RecentLatency
from metadata.callbacks import Callbacks
from metadata.ids import BookieId, EntryId, LedgerId
from quire.identity.sasl_access import SaslAccess
from quire.identity.tls import ContextSource

BODIES_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum total size of the buffers of large answers that are kept for reuse."""

Cancel = Callable[[], None]
AnswerT = TypeVar("AnswerT", bound=Answer)
UnavailableCallback = Callable[[BookieId, CallFailure, str], None]

__all__ = ["AddSink", "BookieCallError", "BookiePool", "CallFailure", "Cancel", "PendingAdd"]


class BookiePool:
    """Connections of one client, shared by all of its ledgers. Belongs to one loop."""

    def __init__(
        self,
        addresses: AddressLookup,
        *,
        config: ClientConfig,
        rng: Random,
        ssl: ContextSource | None = None,
        sasl: SaslAccess | None = None,
        credentials: bytes = b"",
        client_name: str = "",
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or Observer()
        self._links: dict[BookieId, BookieLink] = {}
        self._keys: dict[LedgerId, bytes] = {}
        self._attach_counts: dict[LedgerId, int] = {}
        self._callbacks = Callbacks[BookieId, CallFailure, str]()
        self._addresses = addresses
        self._config = config
        self._rng = rng
        self._ssl = ssl
        self._sasl = sasl
        self._credentials = credentials
        self._client_name = client_name
        self._bodies = BodyPool(BODIES_BYTES_MAX)
        self._is_closed = False
        self.refusals = Refusals()
        """Reasons of refusals, for errors."""
        self.principals: dict[BookieId, str] = {}
        """Principal of this client, as each bookie said it at the last hello or login (rule
        12.1).
        """

    def add(
        self,
        bookie_id: BookieId,
        ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        """Send one batch to one bookie; see `add_to`."""
        self.add_to((bookie_id,), PendingAdd(ledger_id, batch, first_entry_id, recovery, sink))

    def add_to(self, bookie_ids: Sequence[BookieId], add: PendingAdd) -> None:
        """Send one batch to several bookies.

        Never raises; one of the sink's methods is called exactly once for each of them later, on
        the loop. The batch must not be changed afterwards. The first frame to a
        bookie with no unanswered request leaves at once; all others of one iteration of the event
        loop leave together.
        """
        self._observer.adds_sent += len(bookie_ids)
        self._observer.add_bytes_sent += len(bookie_ids) * len(add.batch)
        for bookie_id in bookie_ids:
            if self._is_closed:
                failed, first, why = add.sink.on_add_failed, add.first_entry_id, CallFailure.CLOSED
                loop = asyncio.get_running_loop()
                loop.call_soon(failed, bookie_id, first, why, "the client is closed")
            else:
                link = self._links.get(bookie_id) or self._link(bookie_id)
                link.add(add)

    async def read_entries(
        self, bookie_id: BookieId, request: ReadEntries, *, timeout_s: float
    ) -> Entries:
        """Read a range. Raises BookieCallError."""
        return await self._call(bookie_id, request, Entries, request.ledger_id, timeout_s)

    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        """Request the LAC, optionally fencing; the reply contains a status. Raises
        BookieCallError.
        """
        return await self._call(bookie_id, request, LacReply, request.ledger_id, timeout_s)

    def report_lac(self, bookie_id: BookieId, ledger_id: LedgerId, lac: EntryId) -> None:
        """Send a LAC without waiting for an answer; sends nothing if there is no connection."""
        if not self._is_closed:
            self._link(bookie_id).send_one_way(ReportLac(ledger_id, lac), ledger_id)

    async def wait_lac(self, bookie_id: BookieId, request: WaitLac, *, timeout_s: float) -> Entries:
        """Wait until the LAC moves. Raises BookieCallError."""
        return await self._call(bookie_id, request, Entries, request.ledger_id, timeout_s)

    async def list_entries(
        self, bookie_id: BookieId, request: ListEntries, *, timeout_s: float
    ) -> EntryRanges:
        """Request the ranges of stored entries. Raises BookieCallError."""
        return await self._call(bookie_id, request, EntryRanges, request.ledger_id, timeout_s)

    async def read_access(
        self, bookie_id: BookieId, request: ReadAccess, *, timeout_s: float
    ) -> AccessReply:
        """Request a ledger's master key, as repair; the reply contains a status. Raises
        BookieCallError.
        """
        return await self._call(bookie_id, request, AccessReply, request.ledger_id, timeout_s)

    async def fence_without_key(
        self, bookie_id: BookieId, request: FenceWithoutKey, *, timeout_s: float
    ) -> LacReply:
        """Fence a ledger without its key, as repair (rule 9.14); the reply contains a status. No
        key is sent, also if one is attached. Raises BookieCallError.
        """
        return await self._call(bookie_id, request, LacReply, None, timeout_s)

    async def read_rights(
        self, bookie_id: BookieId, request: ReadRights, *, timeout_s: float
    ) -> RightsReply:
        """Request this client's rights on a ledger. Raises BookieCallError."""
        return await self._call(bookie_id, request, RightsReply, request.ledger_id, timeout_s)

    async def ping(self, bookie_id: BookieId, *, timeout_s: float) -> Pong:
        """Check that the bookie lives and accepts adds. Raises BookieCallError."""
        return await self._call(bookie_id, Ping(), Pong, None, timeout_s)

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Send this key to every bookie where the ledger is used, until `detach` was called as
        often.

        Raises UnauthorizedError if another handle of this client uses another key.
        """
        known = self._keys.setdefault(ledger_id, master_key)
        if known != master_key:
            raise UnauthorizedError(
                "this client has the ledger open with another password: close that handle first",
                ledger_id=ledger_id,
            )
        self._attach_counts[ledger_id] = self._attach_counts.get(ledger_id, 0) + 1

    def detach(self, ledger_id: LedgerId) -> None:
        """Undo one `attach`."""
        count = self._attach_counts[ledger_id] - 1
        if count:
            self._attach_counts[ledger_id] = count
            return
        del self._attach_counts[ledger_id], self._keys[ledger_id]
        self.refusals.forget(ledger_id)
        for link in self._links.values():
            link.detach(ledger_id)

    def oldest_unanswered_since(self, bookie_id: BookieId) -> float | None:
        """Return the loop time since which the oldest add waits for this bookie: since it was sent,
        or, without a connection, since the connection attempt began.
        """
        link = self._links.get(bookie_id)
        return link.oldest_unanswered_since if link is not None else None

    def unanswered_bytes(self, bookie_id: BookieId) -> int:
        """Return the bytes of adds that this bookie has not answered."""
        link = self._links.get(bookie_id)
        return link.unanswered_bytes if link is not None else 0

    def add_latency(self, bookie_id: BookieId) -> RecentLatency:
        """Return the recent latencies of this bookie's adds."""
        return self._link(bookie_id).add_latency

    def add_answered_at(self, bookie_id: BookieId) -> float | None:
        """Return the loop time of the last answer to an add, or None."""
        link = self._links.get(bookie_id)
        return link.add_answered_at if link is not None else None

    def failure_of(self, bookie_id: BookieId) -> str:
        """Return why there is no connection to a bookie; empty if that is not known."""
        link = self._links.get(bookie_id)
        return "" if link is None else link.failure

    @property
    def bookie_ids(self) -> tuple[BookieId, ...]:
        """Bookies that received a request, and are registered or in use."""
        return tuple(self._links)

    def on_unavailable(self, callback: UnavailableCallback) -> Cancel:
        """Call back when a connection is lost or refused, or a bookie's registration is gone."""
        return self._callbacks.add(callback)

    def note_departed(self, bookie_id: BookieId) -> None:
        """Record that a bookie's registration is gone (rule 5.6)."""
        self._callbacks.notify(bookie_id, CallFailure.NOT_REGISTERED, "its registration is gone")

    def drop_idle(self, registered: Container[BookieId]) -> None:
        """Remove the links that are not used, to bookies that are not registered."""
        for bookie_id, link in list(self._links.items()):
            if bookie_id not in registered and link.is_idle:
                del self._links[bookie_id]
                self.principals.pop(bookie_id, None)

    async def aclose(self) -> None:
        """End every connection; everything under way fails as CLOSED."""
        self._is_closed = True
        links = list(self._links.values())
        await asyncio.gather(*[link.aclose() for link in links])

    # Internals

    async def _call(
        self,
        bookie_id: BookieId,
        request: Request,
        expects: type[AnswerT],
        ledger_id: LedgerId | None,
        timeout_s: float,
    ) -> AnswerT:
        if self._is_closed:
            why = "the client is closed"
            raise BookieCallError(bookie_id, why, failure=CallFailure.CLOSED)
        self._observer.calls_sent += 1
        link = self._link(bookie_id)
        try:
            answer = await link.call(request, expects, ledger_id, timeout_s)
        except BookieCallError as error:
            if ledger_id is not None and error.status is not None:
                self.refusals.note(bookie_id, ledger_id, error.status, error.reason)
            raise
        assert isinstance(answer, expects), "the connection checked it"
        return answer

    def _link(self, bookie_id: BookieId) -> BookieLink:
        link = self._links.get(bookie_id)
        if link is None:
            link = self._links[bookie_id] = BookieLink(bookie_id, self._settings(bookie_id))
        return link

    def _settings(self, bookie_id: BookieId) -> LinkSettings:
        hello = Hello(
            bookie_id,
            WIRE_VERSION_MIN,
            WIRE_VERSION,
            0 if self._sasl is None else LOGIN_DUE,
            self._credentials,
            self._client_name,
        )
        return LinkSettings(
            self._config,
            self._addresses,
            self._keys,
            self._ssl,
            self._sasl,
            hello,
            self._rng,
            self._observer.note_connected,
            self._note_hello,
            self._note_refused,
            self._on_link_failed,
            self._bodies,
        )

    def _note_hello(self, reply: HelloReply) -> None:
        self.principals[BookieId(reply.bookie_id)] = reply.principal

    def _note_refused(self, bookie_id: BookieId, ledger_id: LedgerId, refused: Refused) -> None:
        self.refusals.note(bookie_id, ledger_id, refused.status, refused.reason)

    def _on_link_failed(self, bookie_id: BookieId, failure: CallFailure, reason: str) -> None:
        self._observer.note_connection_lost(bookie_id, f"{failure.value}: {reason}")
        self._callbacks.notify(bookie_id, failure, reason)
