"""One reading of a server's metrics, in Prometheus's text format. Pure.

Leaves fetching it to `watch`.

Invariant: a text that is not in the format is ScrapeError, and no other exception.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

BUCKET_END = "_bucket"
LE = "le"


class ScrapeError(ValueError):
    """The text is not in Prometheus's format."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Values of one reading."""

    at_s: float
    """Time of the reading, in seconds."""
    totals: Mapping[str, float]
    """Sum of the samples of each name over all labels."""
    buckets: Mapping[str, Mapping[float, float]]
    """Cumulative counts of each histogram, by the upper bounds of its buckets in seconds."""


def parse_scrape(text: str, at_s: float) -> Scrape:
    """Parse a reading. Raises ScrapeError."""
    totals: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith(BUCKET_END) and LE in sample.labels:
                    counts = buckets.setdefault(sample.name.removesuffix(BUCKET_END), {})
                    bound = float(sample.labels[LE])
                    counts[bound] = counts.get(bound, 0.0) + sample.value
                else:
                    totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(f"the metrics cannot be read: {error}") from error
    return Scrape(at_s, totals, buckets)
