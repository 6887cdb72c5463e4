"""Pauses of clients over their quota at a bookie: they end before clients take it for dead."""

from bookie.server.client_quotas import BookieQuotas
from bookie.server.server_limits import ServerCounters
from ledger_client.bookies.connection import PING_TIMEOUT_S
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of


def test_a_pause_ends_before_a_client_takes_the_bookie_for_dead() -> None:
    quotas = QuotaSet()
    values = {QuotaKey.APPEND_BYTE_RATE: 1.0, QuotaKey.READ_BYTE_RATE: 1.0}
    quotas.put(entity_of([("user", "alice")]), values)
    of_bookie = BookieQuotas(quotas, (), ServerCounters(), lambda: 0.0)
    for record in (of_bookie.record_append, of_bookie.record_read):
        assert 0.0 < record("alice", 10**9) < PING_TIMEOUT_S
