"""Disk, sync and queue figures of one bookie, from its own state and metrics. Pure.

Leaves reading both to `bookie_report`.

Invariant: a figure that the bookie does not report, or not as expected, is absent.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from quire.operate.fields import Json

SYNC: Final = "quire_bookie_storage_sync_latency_seconds"
STORAGE_SHOWN: Final = (
    ("disk_free_bytes", "Free on its disk"),
    ("disk_total_bytes", "Size of its disk"),
    ("segment_bytes", "Segment files"),
    ("live_bytes", "Of these named by the index"),
    ("cleaning_backlog_bytes", "Garbage that is due to be cleaned"),
    ("index_bytes", "Index"),
    ("queue_bytes", "Accepted and not yet durable"),
    ("ledgers", "Ledgers stored or fenced"),
    ("damaged_entries", "Damaged entries that are not repaired"),
)
"""Fields of a bookie's statistics, with what the page calls them."""


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Durations of syncs since the bookie started."""

    count: int
    mean_s: float
    p50_s: float
    """Bound of the bucket with the median: it was not longer."""
    p99_s: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the page."""

    name: str
    field: str
    """Field whose name says the unit."""
    value: int


def storage_figures(state: Json) -> list[Figure]:
    """Return the figures of a bookie's statistics."""
    storage = state.get("storage") if isinstance(state, Mapping) else None
    if not isinstance(storage, Mapping):
        return []
    found = [(name, text, storage.get(name)) for name, text in STORAGE_SHOWN]
    return [Figure(text, name, value) for name, text, value in found if isinstance(value, int)]


def conditions_of(state: Json) -> list[Mapping[str, Json]]:
    """Return the conditions that a bookie reports, each with advice."""
    found = state.get("conditions") if isinstance(state, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def sync_times(metrics: str) -> SyncTimes | None:
    """Return the durations of syncs in a bookie's metrics; None if there was no sync."""
    buckets: list[tuple[float, float]] = []
    sum_s = 0.0
    try:
        for family in text_string_to_metric_families(metrics):
            if family.name != SYNC:
                continue
            for sample in family.samples:
                if sample.name == f"{SYNC}_bucket":
                    buckets.append((float(sample.labels["le"]), sample.value))
                elif sample.name == f"{SYNC}_sum":
                    sum_s = sample.value
    except (ValueError, KeyError):
        return None
    buckets.sort()
    if not buckets or not buckets[-1][1] > 0:
        return None
    count = buckets[-1][1]
    return SyncTimes(int(count), sum_s / count, _bound(buckets, 0.5), _bound(buckets, 0.99))


def _bound(buckets: list[tuple[float, float]], share: float) -> float:
    """Return the bound of the first bucket up to which this share of all was counted."""
    wanted = share * buckets[-1][1]
    return next((bound for bound, count in buckets if count >= wanted), math.inf)
