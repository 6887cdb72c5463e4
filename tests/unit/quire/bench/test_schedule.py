"""An open loop's schedule is complete and does not depend on the system."""

from hypothesis import given
from hypothesis import strategies as st

from quire.bench.open_load import Burst, due_times

RATES = st.floats(1, 5_000)
LENGTHS = st.floats(0.1, 5)


@given(RATES, LENGTHS)
def test_every_tick_of_the_rate_is_due_once(rate: float, seconds: float) -> None:
    times = due_times(rate, seconds)
    assert times == [number / rate for number in range(round(rate * seconds))]


@given(RATES, LENGTHS, st.lists(st.tuples(st.floats(0, 4), st.integers(1, 50)), max_size=4))
def test_bursts_are_added_to_the_regular_appends(
    rate: float, seconds: float, bursts: list[tuple[float, int]]
) -> None:
    times = due_times(rate, seconds, [Burst(at, count) for at, count in bursts])
    assert times == sorted(times)
    left = list(times)
    for at in due_times(rate, seconds):
        left.remove(at)
    assert left == sorted(at for at, count in bursts if at < seconds for _ in range(count))
