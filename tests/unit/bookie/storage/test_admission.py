"""Which requests are refused, and with which status (rules 2.4, 4.3, 7.2, 10.1-10.3)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from bookie.storage.admission import Admission
from bookie.storage.horizon import LedgerStatus
from bookie.storage.ledgers import Ledgers
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX, LedgerId

if TYPE_CHECKING:
    from bookie.log.log import Log
    from bookie.storage.cold_ledgers import ColdLedgers

KEY, OTHER = b"k" * 32, b"o" * 32
KNOWN, UNKNOWN = LedgerId(7), LedgerId(8)


@dataclass
class Parts:
    """What an admission reads, with a ledger that has a key."""

    is_writable: bool = True
    takes_recovery_adds: bool = True
    may_have_lost_fences: bool = False
    failure: Exception | None = None
    standings: dict[int, LedgerStatus] = field(default_factory=dict)
    ledgers: Ledgers = field(default_factory=lambda: Ledgers(hot_max=10))
    log_failure: Exception | None = None

    def __post_init__(self) -> None:
        self.state = self.ledgers.get_or_make(KNOWN)
        self.state.master_key = KEY
        log = Parts.__new__(Parts)
        log.failure = self.log_failure
        self.admission = Admission(self.ledgers, cast("ColdLedgers", self), cast("Log", log), self)

    def add(self, ledger_id: LedgerId = KNOWN, *, recovery: bool = False) -> Status | None:
        return self.admission.refuse_add(ledger_id, KEY, recovery=recovery)


def test_ordinary_requests_are_accepted() -> None:
    parts = Parts()
    for ledger_id in (KNOWN, UNKNOWN):
        assert parts.admission.refuse(ledger_id, KEY) is None
        assert parts.add(ledger_id) is None
        assert parts.add(ledger_id, recovery=True) is None
        assert parts.admission.refuse_read(ledger_id, 0, 5, KEY) is None
    assert parts.admission.refuse(KNOWN, OTHER) is Status.UNAUTHORIZED
    assert parts.add(KNOWN) is None


@pytest.mark.parametrize("recovery", [False, True])
def test_a_bookie_that_closes_or_failed_refuses_everything(*, recovery: bool) -> None:
    for parts, status in [
        (Parts(), Status.CLOSING),
        (Parts(failure=OSError()), Status.UNKNOWN),
        (Parts(log_failure=OSError()), Status.UNKNOWN),
    ]:
        parts.admission.is_closing = status is Status.CLOSING
        assert parts.admission.refuse(KNOWN, KEY) is status
        assert parts.admission.refuse_held(parts.state, KEY) is status
        assert parts.add(recovery=recovery) is status
        assert parts.admission.refuse_read(KNOWN, 0, 5, KEY) is status


def test_a_deleted_ledger_is_refused_from_the_beginning_of_its_deletion() -> None:
    parts = Parts()
    parts.admission.deleting[KNOWN] = 1
    assert parts.admission.refuse(KNOWN, KEY) is Status.DELETED
    parts.ledgers.delete(UNKNOWN, has_runs=False)
    assert parts.admission.refuse(UNKNOWN, KEY) is Status.DELETED
    assert parts.add(UNKNOWN, recovery=True) is Status.DELETED


def test_a_request_that_waited_finds_its_ledger_deleted() -> None:
    parts = Parts()
    assert parts.admission.refuse_held(parts.state, KEY) is None
    assert parts.admission.refuse_held(parts.state, OTHER) is Status.UNAUTHORIZED
    assert parts.admission.refuse_held_add(parts.state, KEY, recovery=False) is None
    parts.state.is_deleted = True
    assert parts.admission.refuse_held(parts.state, KEY) is Status.DELETED
    for recovery in (False, True):
        found = parts.admission.refuse_held_add(parts.state, KEY, recovery=recovery)
        assert found is Status.DELETED


def test_a_full_bookie_takes_recovery_adds_while_there_is_room() -> None:
    parts = Parts(is_writable=False)
    assert parts.add() is Status.READ_ONLY
    assert parts.add(recovery=True) is None
    parts = Parts(is_writable=False, takes_recovery_adds=False)
    assert parts.add(recovery=True) is Status.READ_ONLY
    assert Parts(takes_recovery_adds=False).add() is None


def test_a_ledger_that_is_being_released_takes_no_add() -> None:
    parts = Parts()
    parts.admission.releasing[KNOWN] = 1
    for recovery in (False, True):
        assert parts.add(recovery=recovery) is Status.UNKNOWN
    assert parts.add(UNKNOWN) is None


def test_recovery_adds_pass_the_fence() -> None:
    parts = Parts()
    parts.state.fenced = True
    assert parts.add() is Status.FENCED
    assert parts.add(recovery=True) is None


def test_an_unknown_ledger_may_have_been_fenced_in_what_was_lost() -> None:
    parts = Parts(may_have_lost_fences=True)
    assert parts.add(UNKNOWN) is Status.UNKNOWN
    assert parts.add(UNKNOWN, recovery=True) is None
    assert parts.add(KNOWN) is None


@pytest.mark.parametrize(
    ("standing", "add", "recovery"),
    [
        (LedgerStatus.OPEN_HERE, None, None),
        (LedgerStatus.ENDED, Status.FENCED, None),
        (LedgerStatus.GONE, Status.DELETED, Status.DELETED),
        (LedgerStatus.UNKNOWN, Status.UNKNOWN, Status.UNKNOWN),
        (None, Status.UNKNOWN, Status.UNKNOWN),
    ],
)
def test_below_the_horizon_the_standing_of_a_ledger_decides(
    standing: LedgerStatus | None, add: Status | None, recovery: Status | None
) -> None:
    standings: dict[int, LedgerStatus] = {}
    if standing is not None:
        standings = {UNKNOWN: standing, KNOWN: standing}
    parts = Parts(standings=standings)
    parts.ledgers.raise_horizon(UNKNOWN)
    assert parts.add(UNKNOWN) is add
    assert parts.add(UNKNOWN, recovery=True) is recovery
    assert parts.add(KNOWN) is None, "it is here"
    assert parts.admission.refuse_trimmed(KNOWN, exists_is_enough=False) is None
    assert parts.add(LedgerId(UNKNOWN + 1)) is None, "it is above the horizon"


@pytest.mark.parametrize(
    ("first", "last", "status"),
    [
        (0, 0, None),
        (0, ENTRY_ID_MAX, None),
        (ENTRY_ID_MAX, ENTRY_ID_MAX, None),
        (-1, 0, Status.BAD_REQUEST),
        (5, 4, Status.BAD_REQUEST),
        (0, ENTRY_ID_MAX + 1, Status.BAD_REQUEST),
    ],
)
def test_a_read_names_a_range_of_entries(first: int, last: int, status: Status | None) -> None:
    assert Parts().admission.refuse_read(KNOWN, first, last, KEY) is status


def test_a_fence_without_a_key_is_refused_for_the_same_reasons_first() -> None:
    parts = Parts()
    assert parts.admission.refuse_fence(KNOWN, None) is Status.UNAUTHORIZED
    parts.admission.is_closing = True
    assert parts.admission.refuse_fence(KNOWN, None) is Status.CLOSING
