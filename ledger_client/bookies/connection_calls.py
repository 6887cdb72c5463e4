"""Names what is asked of one bookie and how it can end, for those who make requests.

Leaves making them to `ledger_client.bookies.connection` and `ledger_client.bookies.pool`. Nothing
here reaches a user: writers, readers and recovery translate it into a `LedgerError`.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

from bookie.wire.batch import Buffer
from bookie.wire.messages import Status
from metadata.ids import BookieId, EntryId, LedgerId


class CallFailure(StrEnum):
    """Why a bookie gave no answer. None of these is a negative (rule 3.2)."""

    NOT_REGISTERED = "not registered"
    """It is not among the bookies that are up."""
    REFUSED = "connection refused"
    """No connection could be made, or its hello was refused."""
    LOST = "connection lost"
    """The connection broke while the request was under way."""
    TIMEOUT = "no answer in time"
    PROTOCOL = "protocol violation"
    """It answered in a form that it should not have; the connection was closed."""
    CLOSED = "closed"
    """The client is being closed."""
    OVERFLOW = "too much unanswered"
    """The bound of bytes or requests that wait for this bookie is reached (rule 4.6)."""


class BookieCallError(Exception):
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
    """Takes the outcomes of adds: exactly one call for each, on the loop, never from inside the
    call that sent it.
    """

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        """Take a bookie's answer."""
        ...

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Take note that no answer will come; the batch may or may not have been stored."""
        ...


class PendingAdd(NamedTuple):
    """One batch for one or several bookies, and who hears of each outcome."""

    ledger_id: LedgerId
    batch: Buffer
    first_entry_id: EntryId
    recovery: bool
    sink: AddSink
