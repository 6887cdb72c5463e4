"""Records of the audit trail: their bytes, their limits, and additions at the same time."""

import asyncio
import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.security.audit_trail import (
    AUDIT_NODE,
    BYTES_MAX,
    RECORDS_MAX,
    TEXT_CHARACTERS_MAX,
    AuditRecord,
    AuditTrail,
    newest,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore


def record(number: int, text: str = "") -> AuditRecord:
    return AuditRecord(number, "ann", "host", "ledger delete", text or f"ledger={number}", "done")


def test_records_are_kept_in_order() -> None:
    records = tuple(record(number) for number in range(5))
    assert AUDIT_NODE.unpack(AUDIT_NODE.pack(newest(records))) == records


def test_the_oldest_records_are_removed() -> None:
    kept = AUDIT_NODE.unpack(
        AUDIT_NODE.pack(newest([record(number) for number in range(RECORDS_MAX + 5)]))
    )
    assert [audit_record.time_ms for audit_record in kept] == [*range(5, RECORDS_MAX + 5)]


def test_long_records_have_less_room() -> None:
    long = "\N{SNOWMAN}" * 3 * TEXT_CHARACTERS_MAX
    value = AUDIT_NODE.pack(newest([record(number, long) for number in range(RECORDS_MAX)]))
    kept = AUDIT_NODE.unpack(value)
    assert BYTES_MAX * 0.9 < len(value) <= BYTES_MAX
    assert kept[-1].time_ms == RECORDS_MAX - 1
    assert len(kept[0].arguments) == TEXT_CHARACTERS_MAX


def test_text_without_a_utf8_form_is_stored() -> None:
    (kept,) = AUDIT_NODE.unpack(AUDIT_NODE.pack(newest([record(1, "\udcff")])))
    assert kept.arguments == "?"


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_an_error(value: bytes) -> None:
    with contextlib.suppress(MetadataFormatError):
        assert all(
            isinstance(audit_record, AuditRecord) for audit_record in AUDIT_NODE.unpack(value)
        )


@pytest.mark.parametrize("cut", [1, 5])
def test_a_cut_value_is_an_error(cut: int) -> None:
    with pytest.raises(MetadataFormatError):
        AUDIT_NODE.unpack(AUDIT_NODE.pack(newest([record(1)]))[:-cut])


async def test_commands_at_the_same_time_lose_no_record() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    trails = [AuditTrail(store, Random(number)) for number in range(20)]
    await asyncio.gather(*(trail.add(record(number)) for number, trail in enumerate(trails)))
    kept = await trails[0].get()
    assert sorted(audit_record.time_ms for audit_record in kept) == [*range(20)]
    await store.aclose()
