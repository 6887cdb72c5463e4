"""What happened to a ledger."""

from dataclasses import replace

from metadata.ids import ENTRY_ID_MAX, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.ledgers.lost_entries import LostRange
from metadata.repair.claims import Claim
from metadata.repair.jobs import Job, JobName
from quire.console.latency import FRAGMENTS_SHOWN_MAX, timeline
from tests.support.sample_ledgers import closed_ledger, open_ledger


def test_changes_have_their_order_and_no_time() -> None:
    events = timeline(closed_ledger("abc", "abd", "ab"), None, None)
    assert [event.what for event in events] == [
        "created by client-x",
        "fragment 1 begins at entry 10: d in place of c",
        "fragment 2 begins at entry 20: d left",
        "closed at entry 29, by its writer or by a recovery",
    ]
    assert [event.time_ms for event in events] == [0, None, None, None]


def test_losses_and_repair_have_times() -> None:
    lost = (
        LostRange(EntryId(2), EntryId(3), 40),
        LostRange(EntryId(10), EntryId(ENTRY_ID_MAX), 30),
    )
    ledger = replace(closed_ledger("abc"), lost=lost)
    job = Job(JobName(1, 5, LedgerId(7)), ("b is gone",), 50)
    claim = Claim(LedgerId(7), "worker-1", 60, 5, 10, "d")
    events = timeline(ledger, job, claim)[2:]
    assert [event.time_ms for event in events] == [30, 40, 50, 60]
    assert events[0].what == "the loss of the entries from 10 on was accepted"
    assert events[-1].what == "worker worker-1 repairs it: 5 B of about 10 B copied to d"


def test_recovery_and_what_it_gave_up() -> None:
    recovering = replace(open_ledger("abc"), state=LedgerState.IN_RECOVERY)
    assert timeline(recovering, None, None)[-1].what.startswith("recovery began")
    closed = closed_ledger("abc", "abd")
    given_up = replace(
        closed,
        last_entry_id=EntryId(9),
        fragments=closed.fragments[:1],
        given_up=closed.fragments[1:],
    )
    assert "gave up the entries from 10 on" in timeline(given_up, None, None)[-1].what


def test_many_changes_are_cut() -> None:
    events = timeline(open_ledger(*["abc", "abd"] * FRAGMENTS_SHOWN_MAX), None, None)
    assert len(events) == FRAGMENTS_SHOWN_MAX + 2
    assert "older ensemble changes" in events[1].what
