"""Outcomes of requests to one bookie, for the modules that make requests; and reasons with which
bookies refuse requests for lack of a role.

Leaves making them to `ledger_client.bookies.connection` and `ledger_client.bookies.pool`. Users see
none of these: writers, readers and recovery translate them into a `LedgerError`.

Source: protocol rule 12.4.
"""

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from bookie.wire.batch import Buffer
from bookie.wire.messages import Status
from ledger_client.errors import LedgerError, UnauthorizedError
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


LEDGERS_MAX: Final = 1_000


class Refusals:
    """Reasons with which bookies refused requests for lack of a role: the last one of each ledger
    with an open handle, of at most LEDGERS_MAX; the oldest is dropped.
    """

    def __init__(self) -> None:
        self._reasons: dict[LedgerId, str] = {}

    def note(self, bookie_id: BookieId, ledger_id: LedgerId, status: Status, reason: str) -> None:
        """Note a refusal, if it is one of authorization."""
        if status is not Status.UNAUTHORIZED or not reason:
            return
        if ledger_id not in self._reasons and len(self._reasons) >= LEDGERS_MAX:
            del self._reasons[next(iter(self._reasons))]
        self._reasons[ledger_id] = f"bookie {bookie_id} refused it: {reason}"

    def forget(self, ledger_id: LedgerId) -> None:
        """Drop the reason of a ledger whose last handle is closed."""
        self._reasons.pop(ledger_id, None)

    def explained(self, error: LedgerError) -> LedgerError:
        """Return the error, with the reason of the bookie if a bookie gave one."""
        ledger_id = error.ledger_id
        if not isinstance(error, UnauthorizedError) or ledger_id is None:
            return error
        reason = self._reasons.get(ledger_id)
        if reason is None:
            return error
        return UnauthorizedError(
            reason, ledger_id=ledger_id, outcome=error.outcome, entry_id=error.entry_id
        )
