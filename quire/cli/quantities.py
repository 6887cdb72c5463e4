"""Sizes, rates, durations and times as people write and read them: 50MB/s, 30m, 1.5 GiB."""

import argparse
import re
from datetime import UTC, datetime
from typing import Final

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")
_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 24 * 3600}
UNLIMITED: Final = "unlimited"
KIBIBYTE: Final = 1024


def byte_rate(text: str) -> int:
    """Read bytes per second: `50MB/s`, `1.5MiB/s`, `4000`, or `unlimited`, which is 0."""
    if text == UNLIMITED:
        return 0
    rate = _quantity(text.removesuffix("/s"), _BYTES)
    if rate is None or rate < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate: use a number with B, kB, MB, GB, KiB, MiB or GiB, such as "
            f"50MB/s, or {UNLIMITED}"
        )
    return rate


def duration_s(text: str) -> int:
    """Read a duration of at least 1 s: `90`, `90s`, `30m`, `2h`, `1d`."""
    seconds = _quantity(text, _SECONDS)
    if seconds is None or seconds < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration: use a number with s, m, h or d, such as 30m"
        )
    return seconds


def describe_bytes(count: int) -> str:
    """Return a readable number of bytes: 1536 is '1.5 KiB'."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < KIBIBYTE:
            break
        size, unit = size / KIBIBYTE, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def describe_duration(seconds: float) -> str:
    """Return a readable duration: 95 is '2 min', 5400 is '1.5 h'."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < _SECONDS["h"]:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * _SECONDS["d"]:
        return f"{seconds / _SECONDS['h']:.1f} h"
    return f"{seconds / _SECONDS['d']:.1f} days"


def describe_time(ms: int) -> str:
    """Return a readable time, in UTC: '2026-01-31 12:30:05 UTC'."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _quantity(text: str, units: dict[str, int]) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    number, unit = match.groups()
    factor = units.get(unit.lower())
    return None if factor is None else round(float(number) * factor)
