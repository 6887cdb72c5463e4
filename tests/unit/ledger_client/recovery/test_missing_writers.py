"""An open ledger is recovered only once its writer was missing for two session timeouts."""

from dataclasses import replace

import pytest

from ledger_client.recovery.missing_writers import LOOKS_APART_S_MAX, MissingWriters, OpenAction
from metadata.ids import ClientId, LedgerId
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerState
from tests.support.sample_ledgers import open_ledger

L = LedgerId(7)
WRITER = ClientId("client-a")


def look(
    missing: MissingWriters,
    now_s: float,
    *,
    is_registered: bool = False,
    writer: ClientId = WRITER,
    state: LedgerState = LedgerState.OPEN,
) -> OpenAction:
    ledger = replace(open_ledger("abc"), state=state, writer=writer)
    return missing.look(ledger, is_registered=is_registered, now_s=now_s)


def test_a_ledger_whose_writer_lives_is_left() -> None:
    missing = MissingWriters(10.0)
    assert [look(missing, at, is_registered=True) for at in (0, 100)] == [OpenAction.LEAVE] * 2


def test_a_missing_writer_is_waited_for() -> None:
    missing = MissingWriters(10.0)
    assert look(missing, 5.0) is OpenAction.LOOK_AGAIN
    assert missing.due_s(L) == 25.0
    assert look(missing, 24.9) is OpenAction.LOOK_AGAIN
    assert look(missing, 25.0) is OpenAction.RECOVER
    assert look(missing, 26.0) is OpenAction.LOOK_AGAIN, "the next recovery waits again"


def test_a_writer_that_comes_back_starts_the_time_again() -> None:
    missing = MissingWriters(10.0)
    look(missing, 0.0)
    assert look(missing, 19.0, is_registered=True) is OpenAction.LEAVE
    assert look(missing, 21.0) is OpenAction.LOOK_AGAIN
    assert look(missing, 40.9) is OpenAction.LOOK_AGAIN
    assert look(missing, 41.0) is OpenAction.RECOVER


def test_a_writer_is_forgotten_once_another_process_recovers_its_ledger() -> None:
    missing = MissingWriters(10.0)
    look(missing, 0.0)
    assert look(missing, 5.0, state=LedgerState.IN_RECOVERY) is OpenAction.RECOVER
    with pytest.raises(KeyError):
        missing.due_s(L)


def test_a_look_long_after_the_last_one_starts_the_time_again() -> None:
    """The writer may have been there in between: another worker had the ledger's job meanwhile."""
    missing = MissingWriters(10.0)
    assert look(missing, 0.0) is OpenAction.LOOK_AGAIN
    assert look(missing, 3_600.0) is OpenAction.LOOK_AGAIN
    assert missing.due_s(L) == 3_620.0
    assert look(missing, 3_660.0) is OpenAction.RECOVER, "the longest pause of a job is 60 s"


def test_the_pause_that_starts_the_time_again_is_that_after_the_last_look() -> None:
    missing = MissingWriters(10.0)
    assert [look(missing, at) for at in (0.0, 10.0)] == [OpenAction.LOOK_AGAIN] * 2
    assert look(missing, 10.0 + LOOKS_APART_S_MAX) is OpenAction.RECOVER


def test_another_writer_starts_the_time_again() -> None:
    missing = MissingWriters(10.0)
    look(missing, 0.0)
    assert look(missing, 30.0, writer=ClientId("client-b")) is OpenAction.LOOK_AGAIN


def test_a_ledger_in_recovery_is_recovered_at_once() -> None:
    missing = MissingWriters(10.0)
    assert look(missing, 0.0, state=LedgerState.IN_RECOVERY) is OpenAction.RECOVER


def test_a_ledger_without_a_writer_is_never_recovered() -> None:
    missing, unclaimed = (
        MissingWriters(10.0),
        replace(open_ledger("abc"), custom={UNCLAIMED_NAME: b""}),
    )
    actions = [missing.look(unclaimed, is_registered=False, now_s=at) for at in (0.0, 20.0)]
    assert actions == [OpenAction.MOVE] * 2
