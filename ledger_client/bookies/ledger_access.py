"""Master key of a ledger, as its bookies store it, for repair.

The metadata has no password, and a bookie serves a ledger only with its master key. A client whose
credentials are the key of repair may ask the bookies for it. Leaves attaching it to the pool, and
verifying batches without the password to `ledger_client.digest`.

Invariant: None is returned only when every bookie has answered that it stores no key.

Source: metadata design, "Versions and security".
"""

from collections.abc import Sequence

from bookie.wire.messages import ReadAccess, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.errors import NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError
from metadata.ids import BookieId, LedgerId

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
