"""Outcomes of requests to one bookie, for the modules that make requests.

Leaves making them to `ledger_client.bookies.connection` and `ledger_client.bookies.pool`. Users see
none of these: writers, readers and recovery translate them into a `LedgerError`.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

from bookie.wire.batch import Buffer
from bookie.wire.messages import Status
from metadata.ids import BookieId, EntryId, LedgerId
from quire.copyable import CopyableError


class CallFailure(StrEnum):
    """Reason why a bookie gave no answer. None of these is a negative (rule 3.2)."""

    NOT_REGISTERED = "not registered"
    """The bookie is not registered as up."""
    REFUSED = "connection refused"
    """No connection could be made, or its hello was refused."""
    LOST = "connection lost"
    """The connection was lost while the request was under way."""
    TIMEOUT = "no answer in time"
    PROTOCOL = "protocol violation"
    """The bookie violated the protocol; the connection was closed."""
    CLOSED = "closed"
    """The client is being closed."""
    OVERFLOW = "too much unanswered"
    """The limit of bytes or requests that wait for this bookie is reached (rule 4.6)."""


class BookieCallError(CopyableError):
    """A request to one bookie failed: without an answer (`failure`), or by refusal (`status`)."""

    def __init__(
        self,
        bookie_id: BookieId,
        reason: str,
        *,
        failure: CallFailure | None = None,
        status: Status | None = None,
    ) -> None:
        kinds = [failure.value if failure is not None else "", status.name if status else ""]
        super().__init__(": ".join([f"bookie {bookie_id}", *filter(None, [*kinds, reason])]))
        self.bookie_id = bookie_id
        self.failure = failure
        self.status = status
        self.reason = reason


class AddSink(Protocol):
    """Receiver of add outcomes: exactly one call per add, on the loop, never from inside the call
    that sent it.
    """

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        """Receive a bookie's answer."""

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Receive the report that no answer will come; the batch may or may not have been
        stored.
        """


class PendingAdd(NamedTuple):
    """One batch for one or several bookies, and the sink of its outcomes."""

    ledger_id: LedgerId
    batch: Buffer
    first_entry_id: EntryId
    recovery: bool
    sink: AddSink
