"""Read of the LAC, and of the last stored entry, from the bookies of a ledger's last fragment.

Leaves waiting for a new LAC to `tailing.py`.

Invariants: the LAC of any bookie is true. The read ends when the result is as fresh as an ack
quorum: when the answers cover (rule 3.2), or every bookie has answered or failed. That a bookie has
no entry says nothing until the answers cover. Answers that cover name the last entry that may be
acknowledged: an ack quorum of it has a bookie among them.

Source: protocol rules 8.1, 8.5 and 8.7.
"""

import asyncio

from bookie.wire.messages import ReadLac, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool
from ledger_client.errors import QuorumTimeoutError, UnauthorizedError
from ledger_client.protocol.known_answers import KNOWN
from ledger_client.reading.followed_ledger import FollowedLedger
from metadata.cancelling import cancel_and_wait
from metadata.ids import NO_ENTRY, BookieId, EntryId
from metadata.ledgers.copies import covers

Heard = tuple[int, Status | None, EntryId, str]
"""Position, status, last stored entry and reason."""


async def read_lac(ledger: FollowedLedger, pool: BookiePool, timeout_s: float) -> EntryId | None:
    """Update the ledger's LAC from its bookies. Return the last entry that may be acknowledged;
    None if too few bookies answered to know it.

    Raises UnauthorizedError, and QuorumTimeoutError if no bookie told a LAC and the answers do not
    cover.
    """
    fragment = ledger.metadata.last_fragment
    ensemble, quorum = fragment.ensemble, ledger.metadata.quorum_of(fragment)
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[Heard] = asyncio.Queue()
    tasks = [
        loop.create_task(_ask(ledger, pool, position, bookie_id, timeout_s, answers))
        for position, bookie_id in enumerate(ensemble)
    ]
    known: list[int] = []
    last_stored = EntryId(fragment.first_entry_id - 1)
    reasons: list[str] = []
    try:
        for _ in ensemble:
            position, status, highest, reason = await answers.get()
            if status is Status.UNAUTHORIZED:
                text = f"bookie {ensemble[position]} refused the password: open it with the correct"
                refused = UnauthorizedError(f"{text} one", ledger_id=ledger.ledger_id)
                raise pool.refusals.explained(refused)
            if status in KNOWN:
                known.append(position)
                last_stored = max(last_stored, highest)
            if status is Status.OK:
                ledger.is_lac_told = True
            else:
                reasons.append(reason)
            if covers(quorum, known):
                ledger.is_lac_told = True
                return max(last_stored, ledger.last_confirmed)
    finally:
        await cancel_and_wait(*tasks)
    if len(reasons) == len(ensemble):
        raise QuorumTimeoutError(
            f"no bookie of the last fragment returned the LAC ({'; '.join(reasons)}): try again",
            ledger_id=ledger.ledger_id,
            outcome="not_written",
        )
    return None


async def _ask(
    ledger: FollowedLedger,
    pool: BookiePool,
    position: int,
    bookie_id: BookieId,
    timeout_s: float,
    answers: "asyncio.Queue[Heard]",
) -> None:
    request = ReadLac(ledger.ledger_id, fence=False)
    try:
        reply = await pool.read_lac(bookie_id, request, timeout_s=timeout_s)
    except BookieCallError as error:
        answers.put_nowait((position, error.status, NO_ENTRY, str(error)))
    else:
        if reply.status is Status.OK:
            ledger.advance_lac(reply.lac)
        reason = f"{bookie_id} answered {reply.status.name}"
        answers.put_nowait((position, reply.status, reply.highest_entry_id, reason))
