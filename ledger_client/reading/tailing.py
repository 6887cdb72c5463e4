"""What a reader learns of a ledger's LAC from its bookies: by asking them, and by long polls until
the LAC moves, whose answers can carry entries.

Leaves reading all other entries to `reader.py`.

One bookie that holds the next entry is polled. While it is silent, a second and a third are polled
too, until the polled bookies cannot all have missed an acknowledged entry. So a bookie that hangs,
or that the writer replaced, causes only a short delay. After a failed poll, the next bookie is
polled.

A bookie hears that an entry is confirmed with a later batch, and of the last entry of a stripe with
a batch of the next stripe (rule 3.1). So a bookie that holds the next stripe is polled too, unless
the first one does. A poll of a bookie that holds neither stripe any more may go on, but takes no
place.

Invariants: polls follow the last fragment of the current metadata; without progress there is a
pause between polls. The LAC of any bookie is true. A read of the LAC ends when the result is as
fresh as an ack quorum: when the answers cover (rule 3.2), or every bookie has answered or failed.
That a bookie has no entry says nothing until the answers cover. Answers that cover name the last
entry that may be acknowledged: an ack quorum of it has a bookie among them.

Source: protocol rules 3.1, 8.1, 8.4, 8.5 and 8.7.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bookie.wire.messages import KNOWN, ReadLac, Status, WaitLac
from ledger_client.batches import EntryBatch
from ledger_client.bookies.pool import BookieCallError, BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import QuorumTimeoutError, UnauthorizedError
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.verified_entries import VerifiedEntries, verify_entries
from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, BookieId, EntryId, Version
from metadata.ledgers.copies import covers, negatives_needed, stripe_end, write_set
from metadata.ledgers.ledger_metadata import QuorumSpec

SILENCE_S: Final = 0.5
"""Time for which a polled bookie may be silent before another one is polled too."""
QUICK_S: Final = 0.02
"""A poll that ends sooner than this without progress is followed by a pause."""
POLLS_AT_LEAST: Final = 2
"""Minimum number of bookies polled in a long silence, if the entry has as many replicas."""


@dataclass(frozen=True, slots=True)
class _PollEnded:
    bookie_id: BookieId
    answer: VerifiedEntries | None
    """None if the poll failed."""
    took_s: float
    poll: "asyncio.Task[None] | None"
    """The task itself: the end of a cancelled poll may still be in the queue."""
    is_unauthorized: bool = False


class TailPoller:
    """Long polls of one tailing reader. Must be closed."""

    def __init__(
        self,
        ledger: FollowedLedger,
        keys: LedgerKeys,
        pool: BookiePool,
        config: ClientConfig,
        rng: Random,
        *,
        takes_entries: bool = True,
    ) -> None:
        """Create a poller; unless it `takes_entries`, its polls request the LAC alone."""
        self._takes_entries = takes_entries
        self._ledger = ledger
        self._keys = keys
        self._pool = pool
        self._config = config
        self._events: asyncio.Queue[_PollEnded | None] = asyncio.Queue()
        self._polls: dict[BookieId, asyncio.Task[None]] = {}
        self._polled: tuple[BookieId, ...] = ()
        self._asked_ahead: EntryId | None = None
        """The LAC at which a bookie of the next stripe was polled last."""
        self._is_woken = False
        self._preferred = rng.choice(ledger.metadata.last_fragment.ensemble)
        self._backoff = Backoff(rng, first_s=0.01, max_s=0.5)
        self._cancel = ledger.on_change(self._on_change)

    async def wait(self) -> tuple[EntryBatch, ...]:
        """Return once the LAC moved, the metadata changed, or the ledger is gone. The result
        contains the entries after the former LAC that an answer carried. Raises UnauthorizedError.
        """
        before = self._seen()
        while self._seen() == before and not self._is_woken:
            self._poll_if_idle()
            try:
                async with asyncio.timeout(SILENCE_S):
                    ended = await self._events.get()
            except TimeoutError:
                self._asked_ahead = None
                self._poll_another()
                continue
            if ended is not None:
                batches = await self._take(ended, before[0])
                if batches:
                    return batches
        return ()

    async def aclose(self) -> None:
        """Cancel the polls."""
        self._cancel()
        await cancel_and_wait(*self._polls.values())

    def wake(self) -> None:
        """Make `wait` return, now and from now on."""
        self._is_woken = True
        self._on_change()

    def _on_change(self) -> None:
        if self._events.empty():
            self._events.put_nowait(None)

    def _seen(self) -> tuple[EntryId, Version, bool]:
        return self._ledger.last_confirmed, self._ledger.version, self._ledger.is_deleted

    async def _take(self, ended: _PollEnded, lac_before: EntryId) -> tuple[EntryBatch, ...]:
        if self._polls.get(ended.bookie_id) is ended.poll:
            del self._polls[ended.bookie_id]
        if ended.is_unauthorized:
            refused = UnauthorizedError(
                f"bookie {ended.bookie_id} refused the password: open it with the correct one",
                ledger_id=self._ledger.ledger_id,
            )
            raise self._pool.refusals.explained(refused)
        answer = ended.answer
        if answer is not None:
            self._ledger.advance_lac(answer.lac)
        lac = self._ledger.last_confirmed
        if answer is None or lac <= lac_before:
            if ended.bookie_id not in self._candidates():
                return ()
            self._preferred = self._after(ended.bookie_id)
            if ended.took_s < QUICK_S:
                await asyncio.sleep(self._backoff.next_s())
            return ()
        self._backoff.count = 0
        self._preferred = ended.bookie_id
        return tuple(
            EntryBatch(view, max(view.header.first_entry_id, EntryId(lac_before + 1)), last)
            for view in answer.batches
            if (last := min(lac, view.header.last_entry_id)) > lac_before
            and last >= view.header.first_entry_id
        )

    def _poll_if_idle(self) -> None:
        ensemble = self._ledger.metadata.last_fragment.ensemble
        if self._polled != ensemble:
            for task in self._polls.values():
                task.cancel()
            self._polls.clear()
            self._polled = ensemble
        if not self._polled_of(self._candidates()):
            self._poll_another()
        self._poll_ahead()

    def _poll_another(self) -> None:
        candidates = self._candidates()
        polled_count = self._polled_of(candidates)
        most = max(POLLS_AT_LEAST, negatives_needed(self._quorum))
        if polled_count < min(most, len(candidates)):
            following = next(candidate for candidate in candidates if candidate not in self._polls)
            self._start(following, is_first=not polled_count)

    def _poll_ahead(self) -> None:
        """Poll a bookie of the next stripe, once for each LAC and silence, unless one is polled."""
        lac = self._ledger.last_confirmed
        ahead = self._holders(EntryId(stripe_end(self._quorum, EntryId(lac + 1)) + 1))
        if self._asked_ahead != lac and not self._polled_of(ahead):
            self._start(ahead[-1], is_first=False)
        self._asked_ahead = lac

    def _start(self, bookie_id: BookieId, *, is_first: bool) -> None:
        poll = self._poll(bookie_id, is_first=is_first)
        self._polls[bookie_id] = asyncio.get_running_loop().create_task(poll)

    def _polled_of(self, bookie_ids: Sequence[BookieId]) -> int:
        return sum(bookie_id in self._polls for bookie_id in bookie_ids)

    @property
    def _quorum(self) -> QuorumSpec:
        metadata = self._ledger.metadata
        return metadata.quorum_of(metadata.last_fragment)

    def _candidates(self) -> list[BookieId]:
        """Return the bookies that may hold the next entry, the preferred one first."""
        replicas = self._holders(EntryId(self._ledger.last_confirmed + 1))
        return sorted(replicas, key=lambda bookie_id: bookie_id != self._preferred)

    def _holders(self, entry_id: EntryId) -> tuple[BookieId, ...]:
        fragment = self._ledger.metadata.last_fragment
        return write_set(self._quorum, fragment, EntryId(min(entry_id, ENTRY_ID_MAX)))

    def _after(self, bookie_id: BookieId) -> BookieId:
        ensemble = self._ledger.metadata.last_fragment.ensemble
        position = ensemble.index(bookie_id) if bookie_id in ensemble else -1
        return ensemble[(position + 1) % len(ensemble)]

    async def _poll(self, bookie_id: BookieId, *, is_first: bool) -> None:
        """Poll once. Only the first of several polls requests entries, the others request
        the LAC.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        config, lac, began = self._config, self._ledger.last_confirmed, loop.time()
        bytes_max = config.read_bytes_max if is_first and self._takes_entries else 0
        wait_ms = int(config.long_poll_s * 1000)
        request = WaitLac(self._ledger.ledger_id, lac, wait_ms, bytes_max)
        timeout_s = config.long_poll_s + config.read_timeout_s
        try:
            answer = await self._pool.wait_lac(bookie_id, request, timeout_s=timeout_s)
        except BookieCallError as error:
            is_unauthorized = error.status is Status.UNAUTHORIZED
            ended = _PollEnded(bookie_id, None, loop.time() - began, task, is_unauthorized)
        else:
            first, last = EntryId(lac + 1), EntryId(max(answer.lac, lac + 1))
            verified = verify_entries(answer, self._keys, first, last)
            is_unauthorized = answer.status is Status.UNAUTHORIZED
            ended = _PollEnded(bookie_id, verified, loop.time() - began, task, is_unauthorized)
        self._events.put_nowait(ended)


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
