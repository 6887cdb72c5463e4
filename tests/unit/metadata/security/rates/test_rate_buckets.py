"""What clients owe, and the quotas of one key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of
from metadata.security.rates import rate_quota
from metadata.security.rates.rate_buckets import BURST_S, THROTTLE_S_MAX, RateBuckets
from metadata.security.rates.rate_quota import RateQuota

KEY = QuotaKey.PRODUCER_BYTE_RATE
ALICE, ALL_CLIENTS = entity_of([("user", "alice")]), entity_of([("client-id", None)])


def test_a_burst_is_free_and_then_the_rate_holds() -> None:
    buckets = RateBuckets()
    assert buckets.record("a", 1_000, 1_000, 0.0) == 0.0
    assert buckets.record("a", 500, 1_000, 0.0) == pytest.approx(0.5)
    assert buckets.record("b", 500, 1_000, 0.0) == 0.0
    assert buckets.record("a", 0, 1_000, 10.0) == 0.0
    assert buckets.record("a", 10**9, 1_000, 10.0) == THROTTLE_S_MAX


@given(
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=50),
    gaps=st.lists(st.floats(0.0, 2.0), min_size=50, max_size=50),
    per_s=st.integers(100, 3_000),
)
def test_a_client_that_pauses_keeps_its_rate(
    sizes: list[int], gaps: list[float], per_s: int
) -> None:
    buckets, now_s, moved = RateBuckets(), 0.0, 0
    for size, gap_s in zip(sizes, gaps, strict=False):
        moved += size
        pause_s = buckets.record("a", size, per_s, now_s)
        assert moved <= per_s * (now_s + pause_s + BURST_S) + 1e-6 or pause_s == THROTTLE_S_MAX
        now_s += pause_s + gap_s


@pytest.mark.parametrize("size", [1_000, 100_000, 900_000])
def test_a_client_that_always_sends_gets_its_rate_over_a_minute(size: int) -> None:
    buckets, now_s, moved, per_s = RateBuckets(), 0.0, 0, 1_000_000.0
    while now_s < 60.0:
        moved += size
        now_s += buckets.record("a", size, per_s, now_s) + 0.0001
        assert buckets.record("b", 10, per_s, now_s) == 0.0
    assert moved == pytest.approx(per_s * (now_s + BURST_S), rel=0.01)


def test_a_server_may_have_shorter_pauses() -> None:
    buckets = RateBuckets(throttle_s_max=1.0)
    assert [buckets.record("a", 4_000, 1_000, 0.0), buckets.record("a", 0, 1_000, 1.0)] == [
        1.0,
        1.0,
    ]
    assert buckets.record("a", 0, 1_000, 2.5) == pytest.approx(0.5), (
        "what is above it is paid later"
    )


def test_a_unit_is_taken_only_within_the_burst() -> None:
    buckets = RateBuckets(burst_s=2.0)
    assert [buckets.take("a", 1, 1.0, 0.0) for _ in range(3)] == [True, True, False]
    assert [buckets.take("a", 1, 1.0, 1.0) for _ in range(2)] == [True, False]
    assert buckets.take("b", 1, 1.0, 1.0)


def test_the_longest_unused_client_is_dropped_first() -> None:
    buckets = RateBuckets(kept_max=2)
    for client in ("a", "b", "a", "c"):
        buckets.record(client, 1_000, 1_000, 0.0)
    assert len(buckets) == 2
    assert buckets.record("a", 0, 1_000, 0.0) == pytest.approx(1.0), "a is kept"
    assert buckets.record("b", 1_000, 1_000, 0.0) == 0.0, "b begins again"


def test_changes_of_quotas_hold_at_once() -> None:
    quotas = QuotaSet()
    quota = RateQuota(quotas, KEY)
    assert not quota.is_limited
    quotas.put(ALICE, {KEY: 1_000.0})
    assert quota.is_limited
    assert quota.record("alice", "c", 3_000, 0.0) == pytest.approx(2.0)
    assert quota.record("bob", "c", 3_000, 0.0) == 0.0
    quotas.put(ALICE, {KEY: 3_000.0})
    assert quota.record("alice", "other", 1_500, 0.0) == pytest.approx(0.5)
    quotas.remove(ALICE)
    assert not quota.is_limited
    assert quota.record("alice", "c", 10**9, 0.0) == 0.0


def test_the_default_of_the_options_is_below_all_quotas() -> None:
    quotas = QuotaSet()
    quota = RateQuota(quotas, KEY, default=1_000)
    assert quota.is_limited
    assert quota.record("alice", "c", 1_500, 0.0) == pytest.approx(0.5)
    assert quota.record("bob", "c", 500, 0.0) == pytest.approx(1.0), "it is of the client id"
    assert quota.record("alice", "d", 1_000, 0.0) == 0.0
    quotas.put(ALL_CLIENTS, {KEY: 10_000.0})
    assert quota.record("alice", "c", 500, 0.0) == 0.0


def test_a_percentage_is_time_of_the_loop() -> None:
    quotas = QuotaSet()
    quotas.put(ALICE, {QuotaKey.REQUEST_PERCENTAGE: 50.0})
    quota = RateQuota(quotas, QuotaKey.REQUEST_PERCENTAGE, unit=0.01)
    assert quota.record("alice", "c", 0.5, 0.0) == 0.0
    assert quota.record("alice", "c", 0.5, 0.0) == pytest.approx(1.0)


def test_the_kept_limits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_quota, "LIMITS_KEPT_MAX", 2)
    quota = RateQuota(QuotaSet(), KEY, default=1_000)
    for number in range(5):
        quota.record("alice", str(number), 1, 0.0)
        assert len(quota._limits) <= 2


def test_time_without_requests_is_not_saved() -> None:
    buckets = RateBuckets()
    assert buckets.record("a", 500, 1_000, 0.0) == 0.0
    assert buckets.record("a", 3_000, 1_000, 100.0) == pytest.approx(2.0), "the burst is 1 s"
