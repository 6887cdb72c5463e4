"""Lists everything that a client and a bookie say to each other besides batches.

Leaves their bytes to `bookie.wire.codec`.

Source: protocol rules 2.3, 4.3, 7.2, 8.3, 8.4; storage design.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from metadata.ids import EntryId, LedgerId

WIRE_VERSION: Final = 1
WIRE_VERSION_MIN: Final = 1
MASTER_KEY_BYTES: Final = 32
CREDENTIALS_BYTES_MAX: Final = 8 * 1024
WAIT_S_MAX: Final = 60.0


class Status(IntEnum):
    """A bookie's answer. Only NO_SUCH_ENTRY and NO_SUCH_LEDGER are negatives that it is sure of
    (rule 3.2).
    """

    OK = 0
    NO_SUCH_ENTRY = 1
    NO_SUCH_LEDGER = 2
    UNKNOWN = 3
    """It may have held this and cannot tell: damaged, lost, or in limbo (rule 2.4). Never a
    negative."""
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
    """The bookie is shutting down: nothing was stored by this request."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens every connection (rule 2.3): whom the client believes it reached, and who it is."""

    bookie_id: str
    """Empty: any bookie will do (administration only: no ledger operation is then allowed)."""
    wire_version_min: int
    wire_version_max: int
    features: int
    credentials: bytes
    client_name: str


@dataclass(frozen=True, slots=True)
class HelloReply:
    """Accepts (OK) or refuses a connection; refused ones are closed after this."""

    status: Status
    bookie_id: str
    wire_version: int
    features: int
    frame_bytes_max: int
    entry_bytes_max: int
    reason: str


@dataclass(frozen=True, slots=True)
class AttachLedger:
    """Presents a ledger's master key on this connection; adds, reads and fences of that ledger
    follow it.

    Not answered: a wrong key shows in the answers of what follows (UNAUTHORIZED).
    """

    ledger_id: LedgerId
    master_key: bytes


@dataclass(frozen=True, slots=True)
class DetachLedger:
    """Forgets an attached ledger on this connection. Not answered."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ReadLac:
    """Asks for the LAC; with `fence`, first fences the ledger durably (rule 7.2). Answered by
    LacReply.
    """

    ledger_id: LedgerId
    fence: bool


@dataclass(frozen=True, slots=True)
class WriteLac:
    """Stores an explicit LAC, durable before the answer (rule 8.4). Answered by LacReply."""

    ledger_id: LedgerId
    lac: EntryId


@dataclass(frozen=True, slots=True)
class TellLac:
    """Tells a LAC that no further batch may carry (rule 8.4). Not answered, and nothing waits for
    it: an idle writer pays one small frame, and the next batch or the close makes up for a loss.
    """

    ledger_id: LedgerId
    lac: EntryId


@dataclass(frozen=True, slots=True)
class LacReply:
    """What a bookie knows of a ledger's progress. `highest_entry_id` and `length_after` come from
    whole batches.
    """

    status: Status
    lac: EntryId
    highest_entry_id: EntryId
    fenced: bool


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Asks for entries first..last, at most about `bytes_max` (at least one batch). Answered by an
    ENTRIES frame.

    With `fence` the ledger is fenced durably before anything is looked up: every recovery read does
    so (rule 7.3).
    """

    ledger_id: LedgerId
    first_entry_id: EntryId
    last_entry_id: EntryId
    bytes_max: int
    fence: bool


@dataclass(frozen=True, slots=True)
class WaitLac:
    """A long poll (rule 8.4): answered, by an ENTRIES frame, once the bookie's LAC is beyond `lac`,
    at a fence, or when `wait_ms` have passed; the entries from `lac + 1` up to the new LAC ride
    along, at most about `bytes_max`.
    """

    ledger_id: LedgerId
    lac: EntryId
    wait_ms: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Asks which ranges of entries are held, from `first_entry_id` on. Answered by EntryRanges."""

    ledger_id: LedgerId
    first_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class EntryRanges:
    """Held ranges (first, last), ascending, merged; `complete` is False when more follow the last
    one.
    """

    status: Status
    ranges: tuple[tuple[int, int], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Shows that the connection lives. Answered by Pong."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to Ping; tells whether the bookie accepts ordinary adds."""

    writable: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Answers a request that was not carried out, in place of its usual answer."""

    status: Status
    reason: str


Request = (
    Hello
    | AttachLedger
    | DetachLedger
    | ReadLac
    | WriteLac
    | TellLac
    | ReadEntries
    | WaitLac
    | ListEntries
    | Ping
)
Reply = HelloReply | LacReply | EntryRanges | Pong | Refused
Message = Request | Reply
