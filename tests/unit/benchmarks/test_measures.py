"""The arithmetic of the benchmarks: percentiles, orders, schedules."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ledgers.workload import Load, wire_bytes
from benchmarks.measures import (
    amplification,
    arrivals,
    batch_bytes,
    interleaved,
    is_met,
    latency_figures,
    megabytes_per_second,
    percentile,
    quorum_reached,
)
from bookie.wire.batch import build_batch
from bookie.wire.frames import FRAME_HEADER_BYTES
from metadata.ids import NO_ENTRY, EntryId, LedgerId


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentile_is_the_least_sample_that_enough_do_not_exceed(
    samples: list[float], share: float
) -> None:
    ordered = sorted(samples)
    found = percentile(ordered, share)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= share * len(samples)
    smaller = [sample for sample in samples if sample < found]
    assert not smaller or len(smaller) < share * len(samples)


def test_latencies_are_in_milliseconds() -> None:
    seconds = [number / 1000 for number in range(1, 1001)]
    random.Random(1).shuffle(seconds)
    found = latency_figures(seconds)
    expected = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1000}
    assert found == pytest.approx(expected)
    assert latency_figures([]) == {}


def test_repetitions_are_interleaved_and_rotated() -> None:
    order = list(interleaved("ABC", 3))
    assert "".join(case for _, case in order) == "ABCBCACAB"
    assert [repetition for repetition, _ in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_the_schedule_of_an_open_loop_is_fixed() -> None:
    times = list(arrivals(2_000, 1.5))
    assert len(times) == 3_000
    assert times[0] == 0
    assert times[-1] == pytest.approx(2_999 / 2_000)


def test_rates_and_shares() -> None:
    assert megabytes_per_second(3_000_000, 1.5) == 2.0
    assert amplification(300, 100) == 3.0
    assert amplification(None, 100) is None
    assert amplification(300, 0) is None


def test_bounds_include_their_ends() -> None:
    assert is_met(0.6, {"at_least": 0.6})
    assert not is_met(0.59, {"at_least": 0.6})
    assert is_met(150, {"at_most": 150})
    assert not is_met(151, {"at_most": 150})


@pytest.mark.parametrize(("acks", "reached"), [(1, 9), (2, 5), (3, 2)])
def test_a_quorum_has_the_position_of_its_slowest_member(acks: int, reached: int) -> None:
    assert quorum_reached([5, 9, 2], acks) == reached


@given(st.integers(1, 200), st.integers(1, 50))
def test_raw_sends_as_many_bytes_as_a_real_batch(entry_bytes: int, count: int) -> None:
    payloads = [bytes(entry_bytes)] * count
    batch = build_batch(LedgerId(7), EntryId(0), NO_ENTRY, 0, payloads, seed=1)
    assert wire_bytes(entry_bytes, count) == FRAME_HEADER_BYTES + len(batch)
    assert batch_bytes(entry_bytes, count, frame_bytes=0, header_bytes=48) == len(batch)


def test_a_load_has_the_given_entries() -> None:
    load = Load(100, 2_500)
    payloads = list(load.payloads())
    assert len(payloads) == 2_500
    assert sum(map(len, payloads)) == load.payload_bytes == 250_000
    assert load.raw_entry_count == 2_000
    assert load.raw_batch_bytes == wire_bytes(100, 1_000)
