"""A ledger is judged by which of its bookies are up."""

from dataclasses import replace

import pytest

from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from quire.assessment import fragment_health, ledger_findings, record_findings

A, B, C, D = (BookieId(name) for name in "abcd")
LEDGER = LedgerMetadata(
    ledger_id=LedgerId(7),
    state=LedgerState.OPEN,
    quorum=QuorumSpec(3, 3, 2),
    fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(10), (A, B, D))),
    digest=DigestType.CRC32C,
    created_ms=0,
    creation_token=UpdateToken(bytes(16)),
    update_token=UpdateToken(bytes(16)),
    writer=ClientId("client"),
)


def test_a_whole_cluster_has_no_findings() -> None:
    assert ledger_findings(LEDGER, [A, B, C, D]) == []


@pytest.mark.parametrize(
    ("up", "readable"),
    [([A, B, D], [True, True]), ([A, D], [False, True]), ([C], [False, False])],
)
def test_entries_are_readable_while_fewer_than_the_ack_quorum_are_missing(
    up: list[BookieId], readable: list[bool]
) -> None:
    assert [each.is_readable for each in fragment_health(LEDGER, up)] == readable


def test_each_write_set_counts_where_an_ensemble_is_striped() -> None:
    striped = replace(
        LEDGER,
        quorum=QuorumSpec(4, 2, 2),
        fragments=(Fragment(EntryId(0), (A, B, C, D)),),
    )
    assert fragment_health(striped, [B, D])[0].is_readable
    assert not fragment_health(striped, [C, D])[0].is_readable


def test_findings_name_the_bookies_and_what_to_do() -> None:
    (short,) = ledger_findings(LEDGER, [A, B, D])
    assert short.what == "short of copies: c down"
    (at_risk,) = ledger_findings(LEDGER, [B, C])
    assert "entries from 10 on" in at_risk.what
    assert "a, d down" in at_risk.what


def test_a_record_that_names_unknown_bookies_is_found() -> None:
    assert record_findings(LEDGER, [A, B, C, D]) == []
    (finding,) = record_findings(LEDGER, [A, B, C])
    assert "no cookie: d" in finding.what


def test_a_fragment_behind_the_end_is_found() -> None:
    closed = replace(LEDGER, state=LedgerState.CLOSED, last_entry_id=EntryId(8), length=9)
    assert ["it ends at 8" in each.what for each in record_findings(closed, [A, B, C, D])] == [True]
