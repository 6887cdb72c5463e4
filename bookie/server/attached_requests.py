"""Requests for ledgers of one connection: executed, made to wait for a place, or refused.

Leaves the attached ledgers to `bookie.server.attachments`, the answers to
`bookie.server.ledger_requests` and `bookie.server.long_polls`, and adds to
`bookie.server.connection`.

Invariant: a request for an attached ledger is executed only with the right that it needs.

Source: protocol rules 4.3 and 12.4.
"""

from collections.abc import Callable
from functools import partial

from bookie.server.attachments import Attachment, Attachments
from bookie.server.client_quotas import ClientQuota
from bookie.server.ledger_requests import (
    AttachedRequest,
    LedgerRequest,
    LedgerRequests,
    operation_of,
)
from bookie.server.ledger_rights import RIGHT_BITS, refusal_text
from bookie.server.long_polls import LongPolls
from bookie.server.request_runner import RequestRunner
from bookie.server.server_access import LedgerOperation
from bookie.server.server_answers import refusal_frame, reply_frame
from bookie.server.server_context import ServerContext
from bookie.wire.batch import Buffer
from bookie.wire.messages import ReadEntries, ReadRights, RightsReply, Status, WaitLac


class AttachedRequests:
    """Requests of one connection."""

    def __init__(
        self,
        context: ServerContext,
        attachments: Attachments,
        runner: RequestRunner,
        send: Callable[[list[Buffer]], None],
        must_wait: Callable[[], bool],
        peer: Callable[[], str],
        quota: ClientQuota,
    ) -> None:
        """`must_wait` returns whether reads wait until the client takes answers."""
        storage, limits, counters = context.storage, context.limits, context.counters
        self._context = context
        self._attachments = attachments
        self._runner = runner
        self._send = send
        self._must_wait = must_wait
        self._peer = peer
        self._quota = quota
        self._requests = LedgerRequests(storage, limits, counters, context.now, quota)
        self.polls = LongPolls(
            storage, self._requests, runner, limits, counters, send, self._why_not_read
        )

    def serve(
        self,
        request_id: int,
        request: AttachedRequest,
        attachment: Attachment,
        asked_s: float,
    ) -> None:
        """Execute a request that arrived at `asked_s`, once the rights are known or cannot be
        read.
        """
        operation = operation_of(request)
        if self._context.is_closing:
            self._refuse(request_id, Status.CLOSING, "the bookie is closing")
        elif isinstance(request, ReadRights):
            self._answer_rights(request_id, attachment)
        elif not attachment.rights & RIGHT_BITS[operation]:
            self._refuse_by_roles(request_id, operation, attachment)
        elif isinstance(request, WaitLac):
            if self.polls.is_full:
                self._refuse(request_id, Status.BAD_REQUEST, "too many long polls are waiting")
            else:
                self.polls.wait(request_id, request, attachment)
        else:
            self._read_or_submit(request_id, request, attachment.master_key, asked_s)

    def submit(
        self, request_id: int, request: LedgerRequest, key: bytes | None, asked_s: float
    ) -> None:
        """Execute a request now or after those that wait."""
        size, answer = self._requests.bytes_of(request), self._requests.answer
        is_read = isinstance(request, ReadEntries) and not request.fence
        self._runner.submit(
            request_id,
            size,
            partial(answer, request_id, request, key, asked_s),
            is_metered=is_read and self._quota.limits_reads,
        )

    def refuse_add(self, request_id: int, attachment: Attachment, *, recovery: bool) -> None:
        """Refuse an add for which the client has no right: with the reason, which an ack lacks."""
        self._context.counters.adds_by_status[attachment.status] += 1
        operation = LedgerOperation.RECOVERY_ADD if recovery else LedgerOperation.ADD
        self._refuse_by_roles(request_id, operation, attachment)

    def refuse_waiting(self) -> None:
        """Refuse what waits, because the bookie is closing."""
        self.polls.refuse_all()
        self._attachments.end_waiting()

    def _why_not_read(self, attachment: Attachment) -> str:
        principal = self._attachments.principal
        return refusal_text(principal, LedgerOperation.READ, attachment.ledger_id)

    def _refuse_by_roles(
        self, request_id: int, operation: LedgerOperation, attachment: Attachment
    ) -> None:
        principal, ledger_id = self._attachments.principal, attachment.ledger_id
        reason = attachment.reason or refusal_text(principal, operation, ledger_id)
        if attachment.status is Status.UNAUTHORIZED:
            self._context.counters.refused_by_roles += 1
            who = principal or "unknown"
            audit = self._context.log.audit
            audit.refused(operation, who=who, peer=self._peer(), ledger=ledger_id)
        self._refuse(request_id, attachment.status, reason)

    def _answer_rights(self, request_id: int, attachment: Attachment) -> None:
        is_known = attachment.rights or attachment.status is Status.UNAUTHORIZED
        if is_known:
            self._send([reply_frame(request_id, RightsReply(attachment.rights))])
        else:
            self._refuse(request_id, attachment.status, attachment.reason)

    def _read_or_submit(
        self, request_id: int, request: LedgerRequest, key: bytes, asked_s: float
    ) -> None:
        # While answers are unread, or the client is over a quota, reads from memory wait too.
        may_read = not self._must_wait() and not self._quota.is_paused
        if isinstance(request, ReadEntries) and may_read:
            answer = self._requests.try_read(request_id, request, key, asked_s)
            if answer is not None:
                self._send(answer)
                return
        self.submit(request_id, request, key, asked_s)

    def _refuse(self, request_id: int, status: Status, reason: str) -> None:
        self._send([refusal_frame(request_id, status, reason)])
