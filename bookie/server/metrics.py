"""Prometheus metrics of one bookie: kind and help text of each, and its value.

Leaves counting to `bookie.server.server_limits` and the storage, and the format to
`quire.server.metrics`. This code runs only for a request of the metrics.

Invariant: every field of `StorageStatistics` and every plain field of `ServerCounters` has an item
here; a test compares them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from bookie.identity.position import PositionKeeper
from bookie.server.server_limits import ServerCounters
from bookie.storage.answers import StorageStatistics
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.writability import BLOCKS_NO_ADDS, Reason
from bookie.wire.messages import Status
from metadata.repair.scrub import ScrubRecord
from quire.server.metrics import (
    counter,
    described_metric,
    gauge,
    histogram_metric,
    labelled_counter,
)
from quire.server.overriding import override

PREFIX: Final = "quire_bookie"
SERVER: Final = {
    "connections_now": gauge("Client connections that are open."),
    "connections_accepted": counter("Client connections accepted."),
    "connections_refused": counter("Client connections refused, at the limit or while closing."),
    "connections_refused_of_address": counter(
        "Client connections refused because their address has too many."
    ),
    "peers_dropped": counter(
        "Connections closed because the client was too slow or sent bad frames."
    ),
    "bytes_received": counter("Bytes received from clients."),
    "requests_failed": counter("Requests that failed unexpectedly; the log has a traceback."),
    "bad_frames": counter("Frames that could not be read; each closed its connection."),
    "reading_paused": counter("Number of times that reading from a connection was paused."),
    "hellos_refused": counter("Hellos refused: wrong bookie, version or credentials, or no login."),
    "logins_refused": counter("Logins refused: a wrong password, an unknown user or mechanism."),
    "refused_by_roles": counter("Requests refused because the client lacks a role on the ledger."),
    "requests": counter("Requests received, adds included."),
    "bad_requests": counter("Requests refused because they are not valid."),
    "ack_frames": counter("Frames of answers to adds; one frame carries many answers."),
    "reads_from_memory": counter("Reads answered from the recent entries in memory."),
    "reads_from_disk": counter("Reads answered through the index and the log."),
    "long_polls_now": gauge("Long polls that are waiting."),
    "long_polls_woken": counter("Long polls answered because the LAC advanced."),
    "long_polls_expired": counter("Long polls answered because their time ended."),
}
"""`quire_bookie_<name>`."""
STORAGE: Final = {
    "entries_added": counter("Entries stored."),
    "bytes_added": counter("Bytes of batches stored."),
    "batches_added": counter("Batches stored."),
    "entries_read": counter("Entries returned by reads."),
    "bytes_read": counter("Bytes returned by reads."),
    "syncs": counter("Groups written to the log and synced."),
    "log_bytes_written": counter("Bytes written to the log, headers included."),
    "queue_bytes": gauge("Bytes accepted and not yet durable."),
    "ledgers": gauge("Ledgers that are stored or fenced here."),
    "segments": gauge("Segment files of the log."),
    "segment_bytes": gauge("Bytes of all segment files."),
    "live_bytes": gauge("Approximate bytes of segment files that the index names."),
    "runs_in_memory": gauge("Index entries in memory that no checkpoint has stored yet."),
    "records_since_checkpoint": gauge("Records indexed since the last checkpoint began."),
    "checkpoints": counter("Checkpoints finished."),
    "checkpoint_mark": gauge("LSN up to which the last checkpoint covers the log."),
    "log_end": gauge("LSN below which everything is durable."),
    "recent_bytes": gauge("Bytes of recent entries in memory for tailing readers."),
    "damaged_segments": gauge("Segment files with damage: kept until nothing in them is live."),
    "damaged_segment_bytes": gauge("Sizes of these files, in bytes."),
    "damaged_ranges": gauge("Stored ranges that are damaged and not repaired yet."),
    "damaged_entries": gauge("Stored entries in these ranges."),
    "checked_entries": counter("Entries that the scrub has read and found good."),
    "checked_bytes": counter("Bytes of batches that the scrub has read and found good."),
    "cleaned_segments": counter("Segments removed or rewritten by cleaning."),
    "cleaned_bytes": counter("Bytes freed by cleaning."),
    "cleaning_written_bytes": counter("Bytes that cleaning wrote into new segments."),
    "cleaning_backlog_bytes": gauge("Garbage in segments that are due to be cleaned."),
    "disk_total_bytes": gauge("Bytes of the file system."),
    "disk_free_bytes": gauge("Free bytes of the file system."),
    "index_bytes": gauge("Bytes that the index's store uses."),
    "index_map_bytes": gauge("Bytes that the index's map may use before it is doubled."),
    "is_writable": gauge("1 while ordinary adds are accepted, else 0."),
    "is_limbo": gauge("The same as quire_bookie_limbo."),
}
"""`quire_bookie_storage_<name>`."""
LATENCIES: Final = {
    "add": "Seconds from the arrival of a batch to its answer.",
    "read": "Seconds from the arrival of a read to its answer, without long polls.",
    "sync": "Seconds to write and sync one group of records in the log.",
    "checkpoint": "Duration of one checkpoint of the index, in seconds.",
}
"""Histograms: `quire_bookie_<name>_latency_seconds` for add and read, else
`quire_bookie_storage_<name>_latency_seconds`.
"""
POSITION: Final = {
    "age_seconds": "Seconds since the log's end was recorded in the metadata; 0 while it is.",
    "unrecorded_bytes": "Bytes of log written since the last record.",
}
"""`quire_bookie_position_<name>`."""
SCRUB: Final = {
    "running": "1 while a scrub is under way, else 0.",
    "ended_seconds": "Time of the end of the last complete scrub, in seconds since 1970; 0 before.",
}
"""`quire_bookie_scrub_<name>`."""


@dataclass(eq=False, repr=False)
class BookieMetrics(Collector):
    """Collector that reads the counters on request."""

    _bookie_id: str
    _counters: ServerCounters
    _storage: BookieStorage
    _position: PositionKeeper
    _scrub: Callable[[], ScrubRecord]

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield InfoMetricFamily(PREFIX, "This bookie.", {"bookie_id": self._bookie_id})
        yield from self._server()
        yield from self._writability()
        yield from self._statistics()
        yield from self._recorded_position()
        yield from self._scrubs()
        yield from self._disks()
        for name, latency in self._storage.latencies().items():
            full_name = f"{PREFIX}_storage_{name}_latency_seconds"
            yield histogram_metric(full_name, LATENCIES[name], latency)

    def _server(self) -> Iterator[Metric]:
        counters = self._counters
        yield _adds(counters.adds_by_status)
        yield _throttles(counters.throttles_by_quota)
        for name in ("add", "read"):
            full_name = f"{PREFIX}_{name}_latency_seconds"
            yield histogram_metric(full_name, LATENCIES[name], getattr(counters, f"{name}_latency"))
        for name, described in SERVER.items():
            yield described_metric(f"{PREFIX}_{name}", described, float(getattr(counters, name)))

    def _writability(self) -> Iterator[Metric]:
        writability = self._storage.writability
        family = GaugeMetricFamily(
            f"{PREFIX}_read_only",
            "1 while ordinary adds are refused for this reason, else 0.",
            labels=["reason"],
        )
        blocking = {active.reason for active in writability.conditions() if active.blocks_adds}
        for reason in Reason:
            if reason not in BLOCKS_NO_ADDS:
                family.add_metric([reason.value], float(reason in blocking))
        yield family
        yield GaugeMetricFamily(
            f"{PREFIX}_limbo",
            "1 while stored data may have been lost: an entry not found is UNKNOWN; else 0.",
            float(writability.has(Reason.LIMBO)),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_metadata_old",
            "1 while the metadata service is older than it was: nothing is removed; else 0.",
            float(writability.has(Reason.METADATA_OLD)),
        )

    def _recorded_position(self) -> Iterator[Metric]:
        position = self._position
        values = {"age_seconds": position.age_s, "unrecorded_bytes": position.unrecorded_bytes}
        for name, text in POSITION.items():
            yield GaugeMetricFamily(f"{PREFIX}_position_{name}", text, float(values[name]))

    def _scrubs(self) -> Iterator[Metric]:
        record = self._scrub()
        values = {"running": record.position is not None, "ended_seconds": record.ended_ms / 1000}
        for name, text in SCRUB.items():
            yield GaugeMetricFamily(f"{PREFIX}_scrub_{name}", text, float(values[name]))

    def _disks(self) -> Iterator[Metric]:
        spaces = self._storage.disk_spaces
        for which in ("free", "total"):
            family = GaugeMetricFamily(
                f"{PREFIX}_directory_{which}_bytes",
                f"{which.capitalize()} bytes of the file system that holds a directory.",
                labels=["directory"],
            )
            for name, space in spaces.items():
                family.add_metric([name], float(getattr(space, f"{which}_bytes")))
            yield family

    def _statistics(self) -> Iterator[Metric]:
        statistics = self._storage.statistics()
        for field in fields(StorageStatistics):
            value = float(getattr(statistics, field.name))
            name = f"{PREFIX}_storage_{field.name}"
            yield described_metric(name, STORAGE[field.name], value)


def _adds(by_status: list[int]) -> Metric:
    counts = ((status.name.lower(), by_status[status]) for status in Status)
    text = "Batches answered, by the status of the answer."
    return labelled_counter(f"{PREFIX}_adds", text, "status", counts)


def _throttles(by_key: Mapping[str, int]) -> Metric:
    text = "Pauses of connections because of a quota, by its key."
    return labelled_counter(f"{PREFIX}_throttles", text, "quota", sorted(by_key.items()))
