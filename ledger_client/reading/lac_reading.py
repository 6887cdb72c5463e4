"""Asks the bookies of a ledger's last fragment how far it is confirmed.

Leaves waiting for more to `tailing.py`.

Invariant: any bookie's LAC is true, so none is waited for longer than it takes to be as fresh as
an ack quorum: until the answers cover (rule 3.2), or all have been heard.

Source: protocol rules 8.1 and 8.5.
"""

import asyncio

from bookie.wire.messages import ReadLac, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool
from ledger_client.errors import QuorumTimeoutError, UnauthorizedError
from ledger_client.protocol.quorum import covers
from ledger_client.protocol.recovery_fence import KNOWN
from ledger_client.reading.followed_ledger import FollowedLedger
from metadata.ids import BookieId

Heard = tuple[int, Status | None, str]


async def read_lac(ledger: FollowedLedger, pool: BookiePool, timeout_s: float) -> None:
    """Bring the ledger's LAC up to what its bookies know.

    Raises UnauthorizedError, and QuorumTimeoutError if nobody answered.
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
    reasons: list[str] = []
    try:
        for _ in ensemble:
            position, status, reason = await answers.get()
            if status is Status.UNAUTHORIZED:
                text = f"bookie {ensemble[position]} refused the password: open it with the right"
                raise UnauthorizedError(f"{text} one", ledger_id=ledger.ledger_id)
            if status in KNOWN:
                known.append(position)
            else:
                reasons.append(reason)
            if covers(quorum, known):
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not known:
        raise QuorumTimeoutError(
            f"no bookie of the last fragment told the LAC ({'; '.join(reasons)}): try again",
            ledger_id=ledger.ledger_id,
            outcome="not_written",
        )


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
        answers.put_nowait((position, error.status, str(error)))
        return
    if reply.status is Status.OK:
        ledger.advance_lac(reply.lac)
    answers.put_nowait((position, reply.status, f"{bookie_id} answered {reply.status.name}"))
