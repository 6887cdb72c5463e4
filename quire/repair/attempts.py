"""What all attempts to repair a ledger share: its keys without its password, and their outcomes.

Source: protocol rules 9.1 and 9.14; docs/repair.md, "Keys".
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bookie.wire.messages import ReadAccess, Status
from ledger_client.bookies.placement_policy import Shortage
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.digest import LedgerKeys
from ledger_client.errors import NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata

ANSWER_S: Final = 5.0
"""Time for each bookie to answer, in seconds."""


async def keys_of(ledger: LedgerMetadata, pool: BookiePool) -> LedgerKeys | None:
    """Return the keys of a ledger, whose password repair does not know; None if none of its bookies
    stores it. A bookie keeps the first key that it gets, so a ledger whose key is not known is not
    written, and is fenced without a key only. Raises QuorumTimeoutError, NotEnoughBookiesError and
    UnauthorizedError as `read_master_key`.
    """
    named = (b for fragment in reversed(ledger.fragments) for b in fragment.ensemble)
    holders = list(dict.fromkeys(named))
    key = await read_master_key(pool, ledger.ledger_id, holders, timeout_s=ANSWER_S)
    return None if key is None else LedgerKeys.with_master_key(ledger, key)


_NO_KEY = (Status.OK, Status.NO_SUCH_LEDGER)
_SILENCE = (CallFailure.REFUSED, CallFailure.LOST, CallFailure.TIMEOUT)
"""Failures of a bookie that is registered."""


async def read_master_key(
    pool: BookiePool, ledger_id: LedgerId, bookie_ids: Sequence[BookieId], *, timeout_s: float
) -> bytes | None:
    """Return the key of a ledger from the first bookie that stores it; None if none of them does:
    then no entry of it is stored there. Each bookie has `timeout_s` to answer.

    If none returns the key, raises UnauthorizedError if a bookie refuses the client's credentials;
    QuorumTimeoutError if one that is registered does not answer, which may end at any time;
    NotEnoughBookiesError if one is not registered or cannot know.
    """
    unanswered: dict[str, str] = {}
    refused = ""
    is_silent = False
    for bookie_id in bookie_ids:
        try:
            reply = await pool.read_access(bookie_id, ReadAccess(ledger_id), timeout_s=timeout_s)
        except BookieCallError as error:
            unanswered[bookie_id] = str(error)
            if error.status is Status.UNAUTHORIZED:
                refused = str(error)
            is_silent |= error.failure in _SILENCE
            continue
        if reply.stored_key:
            return reply.stored_key
        if reply.status not in _NO_KEY:
            unanswered[bookie_id] = f"answered {reply.status.name}"
    if refused:
        text = f"the credentials of this client are refused ({refused}): present the key of repair"
        raise UnauthorizedError(text, ledger_id=ledger_id)
    if unanswered:
        why = "; ".join(f"{id_}: {reason}" for id_, reason in unanswered.items())
        text = f"no bookie returned the ledger's key ({why}): try again when they are up"
        if is_silent:
            raise QuorumTimeoutError(text, ledger_id=ledger_id)
        raise NotEnoughBookiesError(
            text,
            needed=1,
            seen=0,
            excluded=unanswered,
            ledger_id=ledger_id,
        )
    return None


@dataclass(frozen=True, slots=True)
class Repaired:
    """The ledger needs nothing more; `copies` fragments were given a bookie."""

    copies: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The ledger does not exist any more."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The repair cannot continue until the cluster changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Postponed:
    """The repair can continue later without any change of the cluster."""

    reason: str
    again_s: float = math.inf
    """Time until it can continue, in seconds, if that is known."""


Outcome = Repaired | Deleted | Blocked | Postponed


def joined(outcomes: Iterable[Outcome | None]) -> Outcome | None:
    """Return the outcome of several parts of one attempt; None if no part has one. What can
    continue without a change comes before what is blocked: a block ends only with a change.
    """
    known = [outcome for outcome in outcomes if outcome is not None]
    return min(known, key=_rank, default=None)


def _rank(outcome: Outcome) -> tuple[int, float]:
    match outcome:
        case Deleted():
            return 0, 0.0
        case Postponed(again_s=again_s):
            return 1, again_s
        case Blocked():
            return 2, 0.0
        case Repaired():
            return 3, 0.0


def describe_shortage(shortage: Shortage) -> str:
    """Return the reason of a repair that lacks bookies."""
    bookies = "bookie" if shortage.needed == 1 else "bookies"
    usable = f"{shortage.seen or 'none'} can be used"
    return f"needs {shortage.needed} more {bookies}, and {usable}{shortage.why}"
