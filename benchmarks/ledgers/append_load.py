"""Timed appends to one ledger, in the ways of users.

Leaves the cases to `benchmarks.ledgers.append`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks.ledgers.workload import Load
from benchmarks.measures import megabytes_per_second
from benchmarks.processes import Metered, Usage
from ledger_client import LedgerWriter, Quorum

if TYPE_CHECKING:
    import asyncio

    from benchmarks.cluster import Running

OUTSTANDING_MAX: Final = 8_000
"""Number of entries that `append_nowait` keeps under way, as in the figures of other systems."""
OUTSTANDING_GROUP: Final = 500
REPLICATION_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Appended:
    """Durations and costs of one run."""

    load: Load
    confirmed_s: float
    replicated_s: float
    client: Usage
    bookies: Usage

    def as_json(self) -> dict[str, object]:
        """Return rates and costs, as a sample."""
        payload, count = self.load.payload_bytes, self.load.entry_count
        written = self.bookies.written_bytes
        return {
            "MB_per_s": megabytes_per_second(payload, self.confirmed_s),
            "replicated_MB_per_s": megabytes_per_second(payload, self.replicated_s),
            "entries_per_s": count / self.confirmed_s,
            "confirmed_s": self.confirmed_s,
            "replicated_s": self.replicated_s,
            "client_cpu_us_per_entry": _micros(self.client.cpu_s, count),
            "bookies_cpu_us_per_entry": _micros(self.bookies.cpu_s, count),
            "written_per_payload_byte": written / payload if written is not None else None,
            "client_anonymous_bytes": self.client.anonymous_bytes,
            "bookies_anonymous_bytes": self.bookies.anonymous_bytes,
        }


async def append_by_many(cluster: "Running", quorum: Quorum, load: Load) -> Appended:
    """Append everything by one call of `append_many`."""
    async with cluster.client.create_ledger(quorum) as ledger:
        payloads = load.payloads()
        metered = cluster.metered()
        start = perf_counter()
        await ledger.append_many(payloads)
        return await _finish(ledger, load, metered_since=start, metered=metered)


async def append_by_nowait(cluster: "Running", quorum: Quorum, load: Load) -> Appended:
    """Append with `append_nowait`, many under way."""
    async with cluster.client.create_ledger(quorum) as ledger:
        payloads = load.payloads()
        metered = cluster.metered()
        start = perf_counter()
        # Entries are confirmed in order, so the last entry represents its group.
        groups: deque[asyncio.Future[int]] = deque()
        handle: asyncio.Future[int] | None = None
        for number, payload in enumerate(payloads, 1):
            handle = ledger.append_nowait(payload)
            if number % OUTSTANDING_GROUP == 0:
                groups.append(handle)
                if len(groups) * OUTSTANDING_GROUP >= OUTSTANDING_MAX:
                    await groups.popleft()
        if handle is not None:
            await handle
        return await _finish(ledger, load, metered_since=start, metered=metered)


async def append_one_by_one(cluster: "Running", quorum: Quorum, load: Load) -> Sequence[float]:
    """Append with one under way at a time; return the duration of each in seconds."""
    latencies: list[float] = []
    async with cluster.client.create_ledger(quorum) as ledger:
        for payload in load.payloads():
            start = perf_counter()
            await ledger.append(payload)
            latencies.append(perf_counter() - start)
    return latencies


def _micros(seconds: float | None, count: int) -> float | None:
    return None if seconds is None else seconds / count * 1e6


async def _finish(
    ledger: LedgerWriter, load: Load, *, metered_since: float, metered: Metered
) -> Appended:
    confirmed_s = perf_counter() - metered_since
    await ledger.wait_fully_replicated(ledger.last_confirmed, timeout=REPLICATION_TIMEOUT_S)
    replicated_s = perf_counter() - metered_since
    client, bookies = metered.finish()
    return Appended(load, confirmed_s, replicated_s, client, bookies)
