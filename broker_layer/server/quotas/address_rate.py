"""Rate of new connections from one address.

Leaves the number of open connections to `quire.server.address_limits`, which also refuses them.

Source: KIP-612. Kafka accepts a connection that is above the rate, and closes it later; here it is
closed at once.
"""

from typing import Final

from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey
from metadata.security.rates.quota_rules import find_address_limit
from metadata.security.rates.rate_buckets import RateBuckets

BURST_S: Final = 10.0
"""An address may make the connections of this many seconds at once, as in Kafka."""


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
