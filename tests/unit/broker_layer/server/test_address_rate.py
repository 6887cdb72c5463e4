"""Rates of new connections from addresses."""

from broker_layer.server.quotas import AddressRate
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of


def test_an_address_has_its_rate() -> None:
    quotas = QuotaSet()
    rate = AddressRate(quotas)
    assert all(rate.admits("10.0.0.1", 0.0) for _ in range(100))
    quotas.put(entity_of([("ip", "10.0.0.1")]), {QuotaKey.CONNECTION_CREATION_RATE: 2.0})
    assert sum(rate.admits("10.0.0.1", 0.0) for _ in range(100)) == 20
    assert sum(rate.admits("10.0.0.1", 1.0) for _ in range(100)) == 2
    assert all(rate.admits("10.0.0.2", 0.0) for _ in range(100))
