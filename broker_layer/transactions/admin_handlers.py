"""Handlers of DescribeTransactions and ListTransactions.

Leaves the state of transactions to `coordinator`.

Invariants: expired transactional ids are not listed.

Source: KIP-664, KIP-994.
"""

from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.values import TopicPartition, Transaction, TransactionState
from broker_layer.turns import Turns, slices

_Described = DescribeTransactionsResponse.TransactionState
_Topic = _Described.TopicData
_Listed = ListTransactionsResponse.TransactionState

_STATES = {state.title: state for state in TransactionState}


class AdminHandlers:
    """Administrative APIs of one transaction coordinator."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    async def describe(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer DescribeTransactions."""
        assert isinstance(request, DescribeTransactionsRequest), "the dispatcher selects by API"
        del context
        states, turns = [], Turns()
        for each in dict.fromkeys(request.transactional_ids):
            states.append(self._described(each))
            await turns.pass_on()
        return DescribeTransactionsResponse(transaction_states=states)

    async def list_all(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer ListTransactions, for the partitions that this broker leads."""
        assert isinstance(request, ListTransactionsRequest), "the dispatcher selects by API"
        del context
        unknown = [name for name in request.state_filters if name not in _STATES]
        try:
            transactions = self._coordinator.list_all()
        except TopicError as error:
            return ListTransactionsResponse(
                error_code=error.code, unknown_state_filters=[], transaction_states=[]
            )
        now_ms = self._coordinator.now_ms()
        listed, turns = list[_Listed](), Turns()
        for some in slices(transactions):
            listed += [
                _Listed(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.title,
                )
                for each in some
                if _is_wanted(each, request, now_ms)
            ]
            await turns.pass_on()
        return ListTransactionsResponse(
            error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=listed
        )

    def _described(self, transactional_id: str) -> _Described:
        try:
            transaction, partitions = self._coordinator.describe(transactional_id)
        except TopicError as error:
            return _Described(
                error_code=error.code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
        return _Described(
            error_code=ErrorCode.NONE,
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.started_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=_topics_of(partitions),
        )


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if transaction.state is TransactionState.DEAD:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.title not in request.state_filters:
        return False
    longer_than_ms = request.duration_filter
    return longer_than_ms < 0 or now_ms - transaction.started_ms > longer_than_ms


def _topics_of(partitions: tuple[TopicPartition, ...]) -> list[_Topic]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return [_Topic(topic=name, partitions=numbers) for name, numbers in topics.items()]
