"""Recent latencies agree with the sorted values, and old ones lose weight."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.protocol.suspicion import LOWEST_S, REMEMBERED_COUNT, RecentLatency

latencies = st.lists(
    st.floats(min_value=0, max_value=60, allow_nan=False), min_size=1, max_size=200
)


@given(latencies, st.floats(min_value=0.01, max_value=1))
def test_a_quantile_is_bounded_by_the_truth(values: list[float], part: float) -> None:
    recent = RecentLatency()
    for value in values:
        recent.record(value)
    truth = sorted(values)[math.ceil(part * len(values)) - 1]
    found = recent.quantile(part)
    assert found is not None
    assert truth * 0.999999 <= found <= max(truth, LOWEST_S) * 1.2


def test_old_latencies_fade() -> None:
    recent = RecentLatency()
    for _ in range(REMEMBERED_COUNT - 1):
        recent.record(1.0)
    for _ in range(20 * REMEMBERED_COUNT):
        recent.record(0.001)
    tail = recent.quantile(0.999)
    assert tail is not None
    assert tail < 0.002


def test_patience_is_bounded() -> None:
    recent = RecentLatency()

    def patience() -> float:
        return recent.patience_s(part=0.99, multiple=8, at_least_s=0.2, at_most_s=2)

    assert patience() == 2, "nothing is known yet"
    recent.record(0.001)
    assert patience() == 0.2
    recent.record(0.1)
    assert 0.8 <= patience() <= 1
    recent.record(60)
    assert patience() == 2
