"""Tests of the decision whether repair goes on."""

from tests.campaign.repair.restoration import PROGRESS_S_MAX, RESTORED_S_MAX, Left, Restoration


def left(ledgers: int, bytes_left: int = 0, blocked: int = 0, *, is_noticed: bool = True) -> Left:
    return Left(is_noticed, ledgers, bytes_left, blocked)


def test_nothing_is_left_only_once_the_loss_is_noticed() -> None:
    assert left(0).is_nothing
    assert not left(0, is_noticed=False).is_nothing
    assert not left(1).is_nothing


def test_fewer_bytes_or_ledgers_are_progress() -> None:
    restoration = Restoration(0.0)
    assert not restoration.see(left(5, 1_000), 0.0)
    assert not restoration.see(left(5, 900), 50.0)
    assert not restoration.see(left(4, 900), 100.0)
    assert not restoration.see(left(4, 950), 110.0)  # a ledger was closed meanwhile
    assert not restoration.see(left(4, 950), 100.0 + PROGRESS_S_MAX)
    assert "no progress" in restoration.see(left(4, 950), 101.0 + PROGRESS_S_MAX)
    assert restoration.most == left(5, 1_000)


def test_a_loss_that_is_not_noticed_is_late() -> None:
    restoration = Restoration(0.0)
    for now_s in range(0, int(PROGRESS_S_MAX) + 1, 10):
        assert not restoration.see(left(0, is_noticed=False), now_s)
    assert "no progress" in restoration.see(left(0, is_noticed=False), PROGRESS_S_MAX + 1)


def test_what_is_blocked_may_wait_but_not_for_ever() -> None:
    restoration = Restoration(0.0)
    for now_s in range(0, int(RESTORED_S_MAX) + 1, 10):
        assert not restoration.see(left(2, 100, blocked=2), now_s)
    assert "not all copies" in restoration.see(left(2, 100, blocked=2), RESTORED_S_MAX + 1)


def test_a_service_that_does_not_answer_is_no_progress() -> None:
    restoration = Restoration(0.0)
    assert not restoration.late(PROGRESS_S_MAX)
    assert restoration.late(PROGRESS_S_MAX + 1)
