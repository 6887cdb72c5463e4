"""Every counter of a bookie has a metric with a help text, and metrics show read-only reasons."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from bookie.server.metrics import LATENCIES, SERVER, STORAGE, BookieMetrics
from bookie.server.server_limits import ServerCounters
from bookie.storage.answers import StorageStatistics
from bookie.storage.writability import Reason
from metadata.ids import EntryId
from metadata.repair.scrub import ScrubPosition, ScrubRecord
from quire.server.latency import LatencyCounts
from quire.server.metrics import metrics_text
from tests.support.bookie.manual_storage import ManualStorage


def test_every_field_has_a_help_text_and_every_help_text_a_field() -> None:
    assert list(STORAGE) == [field.name for field in fields(StorageStatistics)]
    plain = [
        name
        for name in (field.name for field in fields(ServerCounters))
        if name not in ("adds_by_status", "throttles_by_quota")
        and not isinstance(getattr(ServerCounters(), name), LatencyCounts)
    ]
    assert list(SERVER) == plain
    for text in (*(row.text for row in (*STORAGE.values(), *SERVER.values())), *LATENCIES.values()):
        assert text.endswith(".")


RECORD = ScrubRecord(ended_ms=5_000, position=ScrubPosition(7, EntryId(0)))


def test_the_metrics_show_each_reason_for_which_a_bookie_is_read_only() -> None:
    storage = ManualStorage()
    storage.writability.begin(Reason.DISK_FULL, "no space left", where="log")
    storage.writability.begin(Reason.LIMBO, "a record is damaged")
    position: Any = SimpleNamespace(age_s=2.5, unrecorded_bytes=70)
    metrics = BookieMetrics("b-1", ServerCounters(), storage, position, lambda: RECORD)
    lines = metrics_text(metrics).decode().splitlines()
    assert "quire_bookie_position_age_seconds 2.5" in lines
    assert "quire_bookie_position_unrecorded_bytes 70.0" in lines
    assert 'quire_bookie_read_only{reason="disk-full"} 1.0' in lines
    assert 'quire_bookie_read_only{reason="operator"} 0.0' in lines
    assert "quire_bookie_limbo 1.0" in lines
    assert "quire_bookie_scrub_running 1.0" in lines
    assert "quire_bookie_scrub_ended_seconds 5.0" in lines
    assert 'quire_bookie_directory_free_bytes{directory="index"} 20.0' in lines
    assert 'quire_bookie_directory_total_bytes{directory="log"} 100.0' in lines
    assert "# HELP quire_bookie_storage_queue_bytes Bytes accepted and not yet durable." in lines
