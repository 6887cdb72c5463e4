"""All quotas of one broker: how long a client is not read after a request.

Leaves which quota holds for a client, and what it has used, to `metadata.security.rates`, the
number of open connections to `quire.server.connection_context`, and the pause to the connection of
the request. The answer contains the pause as `throttle_time_ms`.

Source: KIP-13, KIP-124, KIP-219, KIP-612. Kafka accepts a connection that is above the rate, and
closes it later; here it is closed at once.
"""

from collections.abc import Callable
from typing import Final

from broker_layer.kafka.messages import ApiMessage, throttle_of
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.exchange import Exchange, WorkTime
from broker_layer.server.server_limits import BrokerCounters, BrokerLimits
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey
from metadata.security.rates.quota_rules import find_address_limit
from metadata.security.rates.rate_buckets import RateBuckets
from metadata.security.rates.rate_quota import RateQuota

BURST_S: Final = 10.0
"""An address may make the connections of this many seconds at once, as in Kafka."""
PERCENT: Final = 0.01
"""Seconds of the event loop in a second that one percent permits."""
CHANGES_OF_TOPICS: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
)
"""APIs whose handlers have a quota of their own: `administration.topic_admin`."""


class AddressRate:
    """The rates of new connections of all addresses."""

    def __init__(self, quotas: QuotaSet) -> None:
        self._quotas = quotas
        self._buckets = RateBuckets(BURST_S)

    def admits(self, address: str, now_s: float) -> bool:
        """Count a new connection if the address is within its rate; return whether it is."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        if not self._quotas.limits(key):
            return True
        per_s = find_address_limit(self._quotas, key, address)
        return per_s is None or self._buckets.take(address, 1, per_s, now_s)


class ClientQuotas:
    """The quotas of clients and addresses, for one broker.

    Invariants: a request is recorded once, when its answer is made; the longest pause of its quotas
    holds; requests of brokers among themselves are not timed.
    """

    def __init__(
        self,
        quotas: QuotaSet,
        limits: BrokerLimits,
        counters: BrokerCounters,
        now: Callable[[], float],
    ) -> None:
        self._counters = counters
        self._now = now
        self.produce = RateQuota(quotas, QuotaKey.PRODUCER_BYTE_RATE, limits.produce_bytes_per_s)
        self.fetch = RateQuota(quotas, QuotaKey.CONSUMER_BYTE_RATE, limits.fetch_bytes_per_s)
        self.work = RateQuota(quotas, QuotaKey.REQUEST_PERCENTAGE, unit=PERCENT)
        self.addresses = AddressRate(quotas)

    def begin_timing(self, exchange: Exchange) -> WorkTime:
        """Measure the time of a request from now on."""
        exchange.work = work = WorkTime(self._now)
        return work

    def record_produce(self, exchange: Exchange) -> float:
        """Record an answered Produce; return for how many seconds its client must not be read."""
        if not self.produce.is_limited and exchange.work is None:
            return 0.0
        moved_s = self._moved(QuotaKey.PRODUCER_BYTE_RATE, self.produce, exchange, exchange.size)
        return max(moved_s, self.record_work(exchange))

    def record_fetch(self, exchange: Exchange, byte_count: int) -> float:
        """Record an answered Fetch; return for how many seconds its client must not be read."""
        if not self.fetch.is_limited and exchange.work is None:
            return 0.0
        moved_s = self._moved(QuotaKey.CONSUMER_BYTE_RATE, self.fetch, exchange, byte_count)
        return max(moved_s, self.record_work(exchange))

    def record_work(self, exchange: Exchange) -> float:
        """Record the time of a request; return for how many seconds its client must not be read."""
        if exchange.work is None:
            return 0.0
        spent_s = exchange.work.spent_s
        return self._moved(QuotaKey.REQUEST_PERCENTAGE, self.work, exchange, spent_s)

    def record_answer(self, exchange: Exchange, response: ApiMessage | bytes) -> float:
        """Record a request whose answer was made; return for how many seconds its client must not
        be read. That is at least the pause that its handler has written into the answer.
        """
        if exchange.api_key not in CHANGES_OF_TOPICS or isinstance(response, bytes):
            return self.record_work(exchange)
        own_s = throttle_of(response)
        if own_s:
            self._counters.note_throttle(QuotaKey.CONTROLLER_MUTATION_RATE)
        return max(own_s, self.record_work(exchange))

    def _moved(self, key: QuotaKey, quota: RateQuota, exchange: Exchange, count: float) -> float:
        if not quota.is_limited:
            return 0.0
        user = exchange.requester.principal.name
        delay_s = quota.record(user, exchange.client_id, count, self._now())
        if delay_s:
            self._counters.note_throttle(key)
        return delay_s
