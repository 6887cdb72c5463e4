"""Byte rates and durations, as people write them."""

import argparse

import pytest

from quire.cli.command_line import byte_rate, duration_s
from quire.operate.fields import describe_duration


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50MB/s", 50_000_000),
        ("50mb", 50_000_000),
        ("1.5 MiB/s", 1_572_864),
        ("4000", 4_000),
        ("2GB/s", 2_000_000_000),
        ("8KiB/s", 8_192),
        ("unlimited", 0),
    ],
)
def test_rates_are_read(text: str, rate: int) -> None:
    assert byte_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "0MB/s", "-1", "fast", "50Mbit/s", "50MB/h", "1e6", "²"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a rate: use a number with B"):
        byte_rate(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1_800), ("30min", 1_800), ("1.5h", 5_400), ("2d", 172_800)],
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0.2s", "-1m", "soon", "30 minutes"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration: use a number with s"):
        duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (95, "2 min"),
        (5_400, "1.5 h"),
        (100_000, "27.8 h"),
        (600_000, "6.9 days"),
    ],
)
def test_durations_are_described(seconds: float, text: str) -> None:
    assert describe_duration(seconds) == text
