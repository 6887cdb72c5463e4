"""What counts as recent, and which bound is shown."""

from quire.server.latency import BOUNDS_S, OVER_BOUNDS_S, WINDOW_S, LatencyWindow


def test_the_percentile_is_the_bound_of_its_bucket() -> None:
    latency = LatencyWindow()
    assert latency.percentile_s(99, 0.0) == 0.0, "nothing was measured"
    latency.record(0.003, 98, 0.0)
    latency.record(0.3, 1, 0.0)
    assert latency.percentile_s(99, 0.0) == 0.5
    assert latency.percentile_s(98, 0.0) == 0.005
    latency.record(0.003, 1, 1.0)
    assert latency.percentile_s(99, 1.0) == 0.005, "one of a hundred is slow"
    assert latency.percentile_s(100, 1.0) == 0.5


def test_a_duration_above_all_bounds() -> None:
    latency = LatencyWindow()
    latency.record(2 * BOUNDS_S[-1], 1, 0.0)
    assert latency.percentile_s(99, 0.0) == OVER_BOUNDS_S


def test_old_durations_do_not_count() -> None:
    latency = LatencyWindow()
    latency.record(1.0, 1, 100.0)
    latency.record(0.001, 1, 100.0 + WINDOW_S)
    assert latency.percentile_s(99, 100.0 + WINDOW_S) == 1.0, "it is one window old"
    assert latency.percentile_s(99, 100.0 + 2 * WINDOW_S) == 0.001
    assert latency.percentile_s(99, 100.0 + 4 * WINDOW_S) == 0.0
