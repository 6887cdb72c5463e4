"""Readings of the metrics of all servers that are up, and what each does per second.

Invariants: all servers are asked at once, each for at most READ_S_MAX; a server that does not
answer has a reason instead of a reading, and delays no other. A text that is not in Prometheus's
format is ScrapeError, and no other exception. A counter that fell, because the server started
again, counts from zero.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.brokers.broker_registration import BrokerRegistration
from metadata.brokers.broker_registry import BrokerDirectory
from metadata.store.interface import MetadataStore
from quire.identity.client_file import ClientFile
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, get_text

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
    # Here, because the parsers of commands import this module, and the client has no such package.
    from prometheus_client.parser import text_string_to_metric_families

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


HIGH_SHARE: Final = 0.99


@dataclass(frozen=True, slots=True)
class Change:
    """Two readings of one server."""

    before: Scrape
    after: Scrape

    @property
    def seconds(self) -> float:
        """Time between the readings."""
        return max(1e-9, self.after.at_s - self.before.at_s)

    def rate(self, counter: str) -> float | None:
        """Return the growth of a counter per second; None if it has no such counter."""
        now = self.after.totals.get(counter)
        if now is None:
            return None
        return _growth(self.before.totals.get(counter, 0.0), now) / self.seconds

    def gauge(self, name: str) -> float | None:
        """Return the newest value of a gauge; None if it has no such gauge."""
        return self.after.totals.get(name)

    def high_s(self, histogram: str, share: float = HIGH_SHARE) -> float | None:
        """Return the time within which a share of what was done in between was done, in seconds;
        None if nothing was done.
        """
        before = self.before.buckets.get(histogram, {})
        after = self.after.buckets.get(histogram, {})
        return quantile_s(
            {bound: _growth(before.get(bound, 0.0), count) for bound, count in after.items()}, share
        )


def quantile_s(counts: Mapping[float, float], share: float) -> float | None:
    """Return a quantile of cumulative counts by their upper bounds, as Prometheus does: linear
    within a bucket, and the lower bound of the last one. None without counts.
    """
    bounds = sorted(counts)
    total = counts[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, low_s, low_count = share * total, 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= wanted:
            if bound == float("inf"):
                return low_s
            within = counts[bound] - low_count
            part = (wanted - low_count) / within if within else 1.0
            return low_s + (bound - low_s) * part
        low_s, low_count = bound, counts[bound]
    return low_s


def _growth(before: float, now: float) -> float:
    return now - before if now >= before else now


READ_S_MAX: Final = 3.0
BOOKIE: Final = "bookie"
BROKER: Final = "broker"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is registered."""

    kind: str
    name: str
    admin_url: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Metrics of a server, or why they are not known."""

    scrape: Scrape | None
    why: str = ""


async def servers_of(cluster: Cluster) -> list[Server]:
    """Return the bookies and brokers that are up, in order. Raises MetadataError."""
    bookies = [
        Server(BOOKIE, registration.bookie_id, registration.admin_url)
        for _, registration in sorted(cluster.directory.bookies.items())
    ]
    brokers = await registered_brokers(cluster.store, cluster.rng)
    return [*bookies, *(Server(BROKER, str(e.broker_id), e.admin_url) for e in brokers)]


async def registered_brokers(store: MetadataStore, rng: Random) -> tuple[BrokerRegistration, ...]:
    """Return the brokers that are up, by their ids. Raises MetadataError."""
    directory = BrokerDirectory(store, rng)
    await directory.start()
    await directory.aclose()
    return tuple(registration for _, registration in sorted(directory.brokers.items()))


async def read_all(
    servers: list[Server], identity: ClientFile, now: Callable[[], float]
) -> dict[Server, Reading]:
    """Read the metrics of all servers at once."""
    readings = await asyncio.gather(*(_read(server, identity, now) for server in servers))
    return dict(zip(servers, readings, strict=True))


async def _read(server: Server, identity: ClientFile, now: Callable[[], float]) -> Reading:
    if not server.admin_url:
        return Reading(None, "it has no admin port")
    try:
        text = await get_text(f"{server.admin_url}/metrics", identity, timeout_s=READ_S_MAX)
        return Reading(parse_scrape(text, now()))
    except (AdminApiError, ScrapeError, SecurityError) as error:
        return Reading(None, str(error))
