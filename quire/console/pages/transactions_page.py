"""Transactions that are open for long, and their end by an operator, behind a page with the plan.

An operator ends a transaction as an administrator's client does: with a new epoch for its
transactional id, which refuses the old producer and aborts what it left open.

Source: KIP-664, KIP-588.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from broker_layer.peer import PeerAddress
from quire.console.context import Pages, Route, see_other
from quire.console.templating import asked_number
from quire.console.topics.access import KeyType, coordinator_of, with_brokers
from quire.operate.brokers import BrokerAccess, require
from quire.server.overriding import override

SECONDS_DEFAULT: Final = 60
SECONDS_MAX: Final = 30 * 24 * 3600
MS_PER_S: Final = 1_000
TITLE: Final = "Transactions"


class TransactionPages(Pages):
    """Pages of transactions."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        context = self._context
        return (
            Route("GET", "/transactions", with_brokers(context, TITLE, self._list)),
            Route("GET", "/transactions/abort", with_brokers(context, TITLE, self._confirm)),
            Route("POST", "/transactions/abort", with_brokers(context, TITLE, self._abort)),
        )

    async def _list(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        seconds = asked_number(request.query, "seconds", SECONDS_DEFAULT, SECONDS_MAX)
        open_ = await read_open(brokers, seconds * MS_PER_S)
        return self._context.page(
            request, "transactions.html", seconds=seconds, seconds_max=SECONDS_MAX, open=open_
        )

    async def _confirm(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        transactional_id = request.query.get("id", "")
        transaction = await read_one(brokers, transactional_id) if transactional_id else None
        if transaction is None:
            raise web.HTTPNotFound(text="there is no such transactional id")
        return self._context.page(request, "transaction_abort.html", transaction=transaction)

    async def _abort(self, request: web.Request, brokers: BrokerAccess) -> web.StreamResponse:
        transactional_id = str((await request.post()).get("id", ""))
        transaction = await read_one(brokers, transactional_id) if transactional_id else None
        if transaction is None:
            raise web.HTTPNotFound(text="there is no such transactional id")
        if not transaction.may_abort:
            raise web.HTTPConflict(text="it is not open any more, or its outcome is decided")
        await abort(brokers, transaction)
        return see_other(request.rel_url.raw_path.removesuffix("/abort"))


OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
SHOWN_MAX: Final = 200
PARTITIONS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One transaction that is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int
    partitions: Sequence[str]

    @property
    def may_abort(self) -> bool:
        """Whether its outcome is not decided yet."""
        return self.state == "Ongoing"


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Transactions that are open for longer than asked, the oldest first."""

    rows: Sequence[OpenTransaction]
    left_out: int
    """Number of those that are not shown."""
    silent: Sequence[int]
    """Ids of brokers that did not answer."""


async def read_open(brokers: BrokerAccess, longer_than_ms: int) -> OpenTransactions:
    """Return the transactions of all brokers that answer. Raises NoBrokerError if none does."""
    request = ListTransactionsRequest(
        state_filters=list(OPEN_STATES),
        producer_id_filters=[],
        duration_filter=longer_than_ms or -1,
    )
    answers = await brokers.ask_each(request, ListTransactionsResponse)
    room, left_out, rows = SHOWN_MAX, 0, list[OpenTransaction]()
    for address, answer in answers.items():
        ids = [] if answer is None else [e.transactional_id for e in answer.transaction_states]
        shown = ids[:room]
        room -= len(shown)
        left_out += len(ids) - len(shown)
        if shown:
            rows += await _described(brokers, address, shown)
    silent = [address.broker_id for address, answer in answers.items() if answer is None]
    return OpenTransactions(sorted(rows, key=lambda row: row.started_ms), left_out, silent)


async def read_one(brokers: BrokerAccess, transactional_id: str) -> OpenTransaction | None:
    """Return the state of a transactional id; None if it has none. Raises NoBrokerError."""
    coordinator = await coordinator_of(brokers, transactional_id, KeyType.TRANSACTION)
    rows = await _described(brokers, coordinator, [transactional_id])
    return rows[0] if rows else None


async def abort(brokers: BrokerAccess, transaction: OpenTransaction) -> None:
    """Refuse the producer of a transaction from now on, and abort the transaction. Raises
    TopicRefusedError, NoBrokerError.
    """
    coordinator = await coordinator_of(brokers, transaction.transactional_id, KeyType.TRANSACTION)
    request = InitProducerIdRequest(
        transactional_id=transaction.transactional_id,
        transaction_timeout_ms=transaction.timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    answer = await brokers.ask_one(coordinator, request, InitProducerIdResponse)
    if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return  # it ends now: the coordinator writes the markers
    require(answer.error_code)


async def _described(
    brokers: BrokerAccess, address: PeerAddress, ids: Sequence[str]
) -> list[OpenTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    answer = await brokers.ask_one(address, request, DescribeTransactionsResponse)
    return [
        OpenTransaction(
            row.transactional_id,
            row.transaction_state,
            row.producer_id,
            row.producer_epoch,
            row.transaction_start_time_ms,
            row.transaction_timeout_ms,
            [f"{topic.topic}-{number}" for topic in row.topics for number in topic.partitions][
                :PARTITIONS_SHOWN_MAX
            ],
        )
        for row in answer.transaction_states
        if row.error_code == ErrorCode.NONE
    ]
