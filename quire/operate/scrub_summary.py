"""State of each bookie's scrub, for operators. Pure.

Leaves reading the records to the commands, and the schedule to the bookies.

Source: protocol rule 9.12; docs/repair.md, "Scrub".
"""

from collections.abc import Mapping

from metadata.ids import BookieId
from metadata.repair.scrub import ScrubRecord
from metadata.repair.settings import RepairSettings
from quire.operate.fields import Json, describe_duration


def scrubs_as_json(
    records: Mapping[BookieId, ScrubRecord], settings: RepairSettings, now_ms: int
) -> list[dict[str, Json]]:
    """Return one row for each bookie, in the order of their ids."""
    return [
        {
            "id": bookie_id,
            "scrub": scrub_text(record, settings, now_ms),
            "checked_bytes": record.checked_bytes,
            "began_ms": record.began_ms or None,
            "ended_ms": record.ended_ms or None,
            "bad_entries": record.bad_entries,
            "bad_ranges": [list(each) for each in record.bad],
        }
        for bookie_id, record in sorted(records.items())
    ]


def scrub_text(record: ScrubRecord, settings: RepairSettings, now_ms: int) -> str:
    """Return what a bookie's scrub does now, or when the last one ended."""
    if record.is_unreadable:
        return "unreadable, `quire repair scrub --now ID` writes a new record"
    requested_ms = max(record.requested_ms, settings.scrub_requested_ms)
    if not settings.scrub_bytes_per_s:
        return f"off, {_ended_text(record, now_ms)}"
    if record.position is not None:
        place = f"at ledger {record.position.ledger_id}"
        return f"under way since {_age(now_ms, record.began_ms)}, {place}"
    if requested_ms > record.served_ms:
        return f"requested, {_ended_text(record, now_ms)}"
    return _ended_text(record, now_ms)


def _ended_text(record: ScrubRecord, now_ms: int) -> str:
    if not record.ended_ms:
        return "none ended yet"
    return f"ended {_age(now_ms, record.ended_ms)} ago"


def _age(now_ms: int, then_ms: int) -> str:
    return describe_duration(max(0, now_ms - then_ms) / 1000)
