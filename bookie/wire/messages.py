"""Messages between a client and a bookie, besides batches.

Leaves their bytes to `bookie.wire.codec`.

Source: protocol rules 2.3, 3.2, 4.3, 7.2, 8.1, 8.3, 8.4, 9.14, 12.1, 12.4, 12.6; storage design.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from metadata.ids import EntryId, LedgerId

WIRE_VERSION: Final = 1
WIRE_VERSION_MIN: Final = 1
MASTER_KEY_BYTES: Final = 32
CREDENTIALS_BYTES_MAX: Final = 8 * 1024
WAIT_S_MAX: Final = 60.0
SASL_BYTES_MAX: Final = 4 * 1024
"""Maximum size of one message of SASL."""

LOGIN_DUE: Final = 1
"""Feature of a hello: the client logs in before its first request (rule 12.6)."""


class Status(IntEnum):
    """Status of a bookie's answer. Only NO_SUCH_ENTRY and NO_SUCH_LEDGER are certain negatives
    (rule 3.2).
    """

    OK = 0
    NO_SUCH_ENTRY = 1
    NO_SUCH_LEDGER = 2
    UNKNOWN = 3
    """The bookie may have stored this: it is damaged, lost, or in limbo (rule 2.4). Never a
    negative.
    """
    FENCED = 4
    CONFLICT = 5
    """Other bytes are stored at this id (rule 4.3)."""
    READ_ONLY = 6
    UNAUTHORIZED = 7
    DELETED = 8
    """The ledger was deleted and its id is never accepted again (rule 10.2)."""
    BAD_REQUEST = 9
    WRONG_BOOKIE = 10
    UNSUPPORTED_VERSION = 11
    CLOSING = 12
    """The bookie is shutting down: this request stored nothing."""


KNOWN: Final = (Status.OK, Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
"""Answers that say what a bookie holds of a ledger: nothing counts as well as something."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a connection (rule 2.3): the bookie that the client expects, and the
    client.
    """

    bookie_id: str
    """Empty: any bookie is accepted (for administration: no ledger operation is allowed then)."""
    wire_version_min: int
    wire_version_max: int
    features: int
    """LOGIN_DUE if the client logs in, else 0."""
    credentials: bytes
    client_name: str


@dataclass(frozen=True, slots=True)
class HelloReply:
    """Acceptance (OK) or refusal of a connection. A refused connection is closed after it."""

    status: Status
    bookie_id: str
    wire_version: int
    features: int
    """LOGIN_DUE if the client offers it and the bookie takes logins, else 0."""
    frame_bytes_max: int
    entry_bytes_max: int
    reason: str
    principal: str
    """Principal of the client (rule 12.1); empty if it proved none, if its login is due, or if the
    bookie has no authorizer.
    """


@dataclass(frozen=True, slots=True)
class BeginLogin:
    """Begin of a login (rule 12.6), with the mechanism and its first message. Answered by
    LoginReply, or by Refused (UNAUTHORIZED): the connection is closed after it.
    """

    mechanism: str
    sasl_message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ContinueLogin:
    """Next message of a login. Answered as BeginLogin."""

    sasl_message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginReply:
    """Answer to a message of a login."""

    sasl_message: bytes = field(repr=False)
    complete: bool
    """Whether the client has logged in; otherwise the next message is due."""
    principal: str
    """Principal of the client, once complete; empty if the bookie has no authorizer."""


@dataclass(frozen=True, slots=True)
class AttachLedger:
    """Master key of a ledger, sent before its adds, reads and fences on this connection.

    Answered only if it is refused: too many ledgers are attached. With a wrong key, or without a
    role that allows them (rule 12.4), later requests are answered UNAUTHORIZED.
    """

    ledger_id: LedgerId
    master_key: bytes


@dataclass(frozen=True, slots=True)
class DetachLedger:
    """Removal of an attached ledger from this connection. Not answered."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ReadLac:
    """Request for the LAC. With `fence`, it first fences the ledger durably (rule 7.2). Answered by
    LacReply.
    """

    ledger_id: LedgerId
    fence: bool


@dataclass(frozen=True, slots=True)
class WriteLac:
    """Request to store an explicit LAC, durably before the answer (rule 8.4). Answered by
    LacReply.
    """

    ledger_id: LedgerId
    lac: EntryId


@dataclass(frozen=True, slots=True)
class ReportLac:
    """Report of a LAC when no further batch carries it (rule 8.4). Not answered, and nothing waits
    for it. It costs an idle writer one small frame; if it is lost, the next batch or the close has
    the LAC.
    """

    ledger_id: LedgerId
    lac: EntryId


@dataclass(frozen=True, slots=True)
class LacReply:
    """Progress of a ledger, as the bookie knows it."""

    status: Status
    lac: EntryId
    highest_entry_id: EntryId
    fenced: bool


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Request for entries first..last, about `bytes_max` at most (at least one batch). Answered by
    an ENTRIES frame.

    With `fence` the ledger is fenced durably before the read, as in every recovery read (rule 7.3).
    """

    ledger_id: LedgerId
    first_entry_id: EntryId
    last_entry_id: EntryId
    bytes_max: int
    fence: bool


@dataclass(frozen=True, slots=True)
class WaitLac:
    """A long poll (rule 8.4). It is answered, by an ENTRIES frame, when the bookie's LAC is beyond
    `lac`, at a fence, or after `wait_ms`. The answer has the entries from `lac + 1` to the new LAC,
    about `bytes_max` at most.
    """

    ledger_id: LedgerId
    lac: EntryId
    wait_ms: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Request for the stored ranges of entries, from `first_entry_id` on. Answered by
    EntryRanges.
    """

    ledger_id: LedgerId
    first_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ReadAccess:
    """Request of repair for the master key of a ledger, which it attaches then. Answered by
    AccessReply, and by Refused (UNAUTHORIZED) unless the hello's credentials proved the role.
    """

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class FenceWithoutKey:
    """Request of repair to fence a ledger of which the bookie knows no master key (rule 9.14).
    Answered by LacReply: its status is that of entry 0, and UNAUTHORIZED if a key is known.
    Answered by Refused (UNAUTHORIZED) unless the hello's credentials proved the role.

    The fence is durable before the answer, and binds the ledger to no key.
    """

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ReadRights:
    """Request for the client's rights on an attached ledger (rule 12.4). Answered by RightsReply. A
    client asks before it begins a recovery, because the first step of a recovery ends the writer.
    """

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class RightsReply:
    """Rights of the client on a ledger, as bits of `metadata.security.ledger_roles.LedgerRight`;
    all of them if the bookie has no authorizer.
    """

    rights: int


@dataclass(frozen=True, slots=True)
class EntryRanges:
    """Stored ranges (first, last), ascending and merged. `complete` is False when more may follow
    the last one.
    """

    status: Status
    ranges: tuple[tuple[int, int], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class AccessReply:
    """Master key of a ledger, as this bookie stores it."""

    status: Status
    stored_key: bytes
    """Empty if the bookie stores none: the ledger is unknown here, or any key opens it."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Check that the connection is alive. Answered by Pong."""


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to Ping, which says whether writers should use the bookie."""

    writable: bool
    append_p99_us: int
    """99 of 100 adds of the last seconds took at most this time, in microseconds: from their
    arrival to their answer, without those of recovery and repair. 0: there were none.
    """


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer to a request that was not executed, in place of its usual answer."""

    status: Status
    reason: str


Request = (
    Hello
    | AttachLedger
    | DetachLedger
    | ReadLac
    | WriteLac
    | ReportLac
    | ReadEntries
    | WaitLac
    | ListEntries
    | ReadAccess
    | FenceWithoutKey
    | ReadRights
    | Ping
    | BeginLogin
    | ContinueLogin
)
Reply = (
    HelloReply | LacReply | EntryRanges | AccessReply | RightsReply | Pong | Refused | LoginReply
)
Message = Request | Reply
