"""The table of rights: every operation and every request has a row."""

import pytest

from bookie.server.access import (
    EVERY_BIT,
    REPAIR_ONLY,
    RIGHT_BITS,
    RIGHT_FOR,
    LedgerOperation,
    refusal_text,
)
from bookie.server.ledger_requests import operation_of
from bookie.wire import codec
from bookie.wire import messages as m
from metadata.ids import EntryId, LedgerId
from metadata.security.ledger_roles import RIGHTS_OF_ROLE, LedgerRight, LedgerRole

ONE, ZERO = LedgerId(1), EntryId(0)
OF_LEDGERS = {
    m.ReadLac(ONE, fence=False): LedgerRight.READ,
    m.ReadLac(ONE, fence=True): LedgerRight.FENCE,
    m.ReadEntries(ONE, ZERO, ZERO, 1, fence=False): LedgerRight.READ,
    m.ReadEntries(ONE, ZERO, ZERO, 1, fence=True): LedgerRight.FENCE,
    m.WaitLac(ONE, ZERO, 1, 1): LedgerRight.READ,
    m.ListEntries(ONE, ZERO): LedgerRight.READ,
    m.WriteLac(ONE, ZERO): LedgerRight.APPEND,
    m.ReadAccess(ONE): LedgerRight.NONE,
    m.FenceWithoutKey(ONE): LedgerRight.NONE,
}
"""Requests for a ledger that are answered. A new one is a decision on security."""
OTHERS = {
    m.Hello,
    m.BeginLogin,
    m.ContinueLogin,
    m.AttachLedger,
    m.DetachLedger,
    m.Ping,
    m.ReportLac,
    m.ReadRights,
}
"""ReadRights needs no role. ReportLac needs the right to append, and has no answer: `test_roles.py`
tests it.
"""


def test_every_operation_has_a_right_or_needs_the_key_of_repair() -> None:
    assert set(RIGHT_FOR) == set(RIGHT_BITS) == set(LedgerOperation)
    without = {operation for operation, right in RIGHT_FOR.items() if right is LedgerRight.NONE}
    assert without == set(REPAIR_ONLY)


def test_every_request_of_the_wire_has_a_row() -> None:
    assert {type(ledger) for ledger in OF_LEDGERS} | OTHERS == set(codec._REQUESTS.values())


@pytest.mark.parametrize(("request_", "right"), OF_LEDGERS.items(), ids=str)
def test_a_request_needs_its_right(request_: m.ReadLac, right: LedgerRight) -> None:
    assert RIGHT_FOR[operation_of(request_)] is right


def test_a_writer_passes_no_fence_and_makes_none() -> None:
    rights = RIGHTS_OF_ROLE[LedgerRole.WRITER]
    allowed = {operation for operation, right in RIGHT_FOR.items() if right and right & rights}
    assert allowed == {LedgerOperation.ADD, LedgerOperation.WRITE_LAC}


def test_all_rights_together_are_every_bit() -> None:
    assert sum(int(right) for right in LedgerRight) == EVERY_BIT


def test_a_refusal_says_who_lacks_what_and_the_next_step() -> None:
    texts = {
        operation: refusal_text("User:bob", operation, ONE)
        for operation, right in RIGHT_FOR.items()
        if right
    }
    assert texts[LedgerOperation.FENCE] == (
        "User:bob may not fence ledger 1: an administrator can give it the role with "
        "`quire grant add 'User:bob' recoverer ledger:1`"
    )
    assert "may not append to" in texts[LedgerOperation.ADD]
    assert "reader ledger:1" in texts[LedgerOperation.READ]
    assert "tls_principal_rules" in refusal_text("", LedgerOperation.READ, ONE)
