"""Ledgers that one connection has attached: each with its key and the rights of the client.

Leaves the rights to `bookie.server.access`, and requests to `bookie.server.connection`.

Invariants: without an authorizer, and for an exempt client, an attached ledger has every right at
once; otherwise its requests wait until the rights are known, in the order of their arrival, at most
WAITING_MAX of a connection and UNDECIDED_BYTES_MAX of the bookie; a failed read decides nothing,
and the next request begins another one; ledgers whose facts are known never wait; a read runs only
for a ledger that requests wait for, at most READS_MAX of a connection at a time: an attached ledger
that is not used costs no read, and one that waits for its read no task.

Source: protocol rules 12.4 and 12.5; docs/decisions/0016-roles-from-the-owner.md.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from bookie.queued_adds import UNDECIDED_BYTES_MAX, QueuedAdds
from bookie.server.access import (
    EVERY_BIT,
    READ_BIT,
    READ_S_MAX,
    FactsUnavailableError,
    LedgerAuthorizer,
)
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from metadata.security.ledger_roles import LedgerFacts

WAITING_MAX: Final = 1_024
"""Maximum number of requests of a connection that wait for rights."""
READS_MAX: Final = 16
"""Maximum number of reads of facts that run for a connection."""
RIGHTS_PER_SLICE: Final = 1_000
"""Number of rights that are computed again before other work runs."""

GONE: Final = "the ledger does not exist: it was never created, or was deleted"
NO_ROOM: Final = "too many requests wait until the rights of their clients are known: try again"

_Call = Callable[[], None]


@dataclass(slots=True, eq=False)
class Attachment:
    """One attached ledger."""

    ledger_id: LedgerId
    master_key: bytes
    rights: int = 0
    """Bits of `LedgerRight`; none until they are known."""
    facts: LedgerFacts | None = None
    status: Status = Status.UNKNOWN
    """Status of a refusal: UNKNOWN until the rights are known."""
    reason: str = ""
    """Why nothing is known, or that the ledger does not exist."""
    waiting: list[tuple[_Call, int]] | None = None
    """Requests that wait for the rights, with their bytes; None if no read runs or will run."""

    @property
    def may_read(self) -> bool:
        """Whether the client may read the ledger now."""
        return bool(self.rights & READ_BIT)

    @property
    def is_undecided(self) -> bool:
        """Whether requests must wait, because the rights are not known."""
        return not self.rights and self.status is Status.UNKNOWN


@dataclass(slots=True, eq=False, repr=False)
class Attachments:
    """Attached ledgers of one connection."""

    _authorizer: LedgerAuthorizer | None
    _queued: QueuedAdds
    principal: str = ""
    """Principal of the client; empty if it proved none."""
    is_exempt: bool = True
    """Whether nothing is refused to the client."""
    _attached: dict[LedgerId, Attachment] = field(default_factory=dict, init=False)
    _reading: dict[asyncio.Task[None], Attachment] = field(default_factory=dict, init=False)
    """Reads of facts, with the ledgers, which may be detached meanwhile."""
    _unread: deque[tuple[Attachment, float]] = field(default_factory=deque, init=False)
    """Ledgers that wait for a read, with the time until which their requests do."""
    _waiting_count: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._attached)

    def greet(self, principal: str, *, is_repair: bool) -> None:
        """Note who the client is. The key of repair allows everything."""
        authorizer = self._authorizer
        self.principal = principal
        self.is_exempt = is_repair or authorizer is None or authorizer.is_exempt(principal)

    def find(self, ledger_id: LedgerId) -> Attachment | None:
        """Return an attached ledger."""
        return self._attached.get(ledger_id)

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> Attachment:
        """Attach a ledger, or replace its key."""
        attachment = self._attached[ledger_id] = Attachment(ledger_id, master_key)
        authorizer = self._authorizer
        if authorizer is None or self.is_exempt:
            attachment.rights = EVERY_BIT
        elif (facts := authorizer.known_facts(ledger_id)) is not None:
            self._decide(attachment, facts)
        return attachment

    def detach(self, ledger_id: LedgerId) -> None:
        """Remove a ledger; its waiting requests are still answered."""
        self._attached.pop(ledger_id, None)

    def once_decided(self, attachment: Attachment, size: int, call: _Call) -> bool:
        """Call now, or once the rights are known or cannot be read; return False if there is no
        room to wait.
        """
        if not attachment.is_undecided:
            call()
            return True
        assert self._authorizer is not None, "without an authorizer nothing is undecided"
        is_full = self._waiting_count >= WAITING_MAX
        if is_full or self._queued.undecided_bytes + size > UNDECIDED_BYTES_MAX:
            return False
        self._waiting_count += 1
        self._queued.undecided_bytes += size
        if attachment.waiting is None:
            attachment.waiting = [(call, size)]
            end_s = asyncio.get_running_loop().time() + READ_S_MAX
            self._unread.append((attachment, end_s))
            self._read_next()
        else:
            attachment.waiting.append((call, size))
        return True

    async def refresh(self, others: Iterable[Attachment] = ()) -> None:
        """Compute all rights again, because grants of the client changed (rule 12.5), also those of
        `others`, which are detached and still have requests.
        """
        authorizer = self._authorizer
        assert authorizer is not None, "grants change only where they matter"
        for number, attachment in enumerate([*self._attached.values(), *others], 1):
            if attachment.facts is not None:
                attachment.rights = authorizer.rights(self.principal, attachment.facts)
            if number % RIGHTS_PER_SLICE == 0:
                await asyncio.sleep(0)

    @property
    def has_waiting(self) -> bool:
        """Whether requests wait for rights."""
        return self._waiting_count > 0

    def end_waiting(self) -> None:
        """Call every waiting request now: the bookie closes, and they are refused."""
        for attachment in self._stop_reading():
            self._release(attachment)

    def cancel(self) -> None:
        """Drop every waiting request: the connection is lost."""
        for attachment in self._stop_reading():
            for _, size in attachment.waiting or ():
                self._free(size)
            attachment.waiting = None
        self._attached.clear()

    def _stop_reading(self) -> list[Attachment]:
        """Begin no more reads, end those that run, and return the ledgers of all."""
        unread, self._unread = self._unread, deque()
        for task in self._reading:
            task.cancel()
        return [*self._reading.values(), *(attachment for attachment, _ in unread)]

    def _read_next(self) -> None:
        """Begin to read facts, as many as may be read at a time."""
        authorizer = self._authorizer
        assert authorizer is not None, "without an authorizer nothing is read"
        while self._unread and len(self._reading) < READS_MAX:
            attachment, end_s = self._unread.popleft()
            work = self._read_and_decide(attachment, authorizer, end_s)
            task = asyncio.get_running_loop().create_task(work)
            self._reading[task] = attachment
            task.add_done_callback(self._note_read)

    def _note_read(self, task: asyncio.Task[None]) -> None:
        del self._reading[task]
        self._read_next()

    async def _read_and_decide(
        self, attachment: Attachment, authorizer: LedgerAuthorizer, end_s: float
    ) -> None:
        try:
            facts = await authorizer.read_facts(attachment.ledger_id, self.principal, end_s)
        except FactsUnavailableError as error:
            attachment.reason = (
                f"the rights on ledger {attachment.ledger_id} could not be read ({error}): try it "
                "again"
            )
        else:
            if facts is None:
                attachment.status, attachment.reason = Status.DELETED, GONE
            else:
                self._decide(attachment, facts)
        self._release(attachment)

    def _decide(self, attachment: Attachment, facts: LedgerFacts) -> None:
        assert self._authorizer is not None, "it read the facts"
        attachment.facts = facts
        attachment.status = Status.UNAUTHORIZED
        attachment.rights = self._authorizer.rights(self.principal, facts)

    def _release(self, attachment: Attachment) -> None:
        waiting, attachment.waiting = attachment.waiting, None
        for call, size in waiting or ():
            self._free(size)
            call()

    def _free(self, size: int) -> None:
        self._waiting_count -= 1
        self._queued.undecided_bytes -= size
