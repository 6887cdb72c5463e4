"""Keys of a ledger for repair, which does not know its password.

The metadata has no password, and a bookie serves a ledger only with its master key. A client whose
credentials are the key of repair may ask the bookies for it.

Invariants: the key comes from a bookie that stores the ledger. A bookie keeps the first key that it
gets, so a ledger whose key is not known is not written, and is fenced without a key only. A ledger
has no key only when every bookie has answered that it stores none.

Source: protocol rules 9.1 and 9.14; metadata design, "Versions and security"; docs/repair.md,
"Keys".
"""

from collections.abc import Sequence
from typing import Final

from bookie.wire.messages import ReadAccess, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.digest import LedgerKeys
from ledger_client.errors import NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata

ANSWER_S: Final = 5.0
"""Time for each bookie to answer, in seconds."""


async def keys_of(ledger: LedgerMetadata, pool: BookiePool) -> LedgerKeys | None:
    """Return the keys of a ledger; None if none of its bookies stores it. Raises
    QuorumTimeoutError, NotEnoughBookiesError and UnauthorizedError as `read_master_key`.
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
        why = "; ".join(f"{each}: {reason}" for each, reason in unanswered.items())
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
