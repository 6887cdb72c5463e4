"""Supervision of several bookies: the pause before a bookie is started again."""

from quire.local.bookie_group import RESTART_PAUSE_MAX_S, STEADY_S, RestartPause


def test_the_pause_doubles_up_to_a_limit() -> None:
    pause = RestartPause()
    assert [pause.after_end(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    for _ in range(2_000):
        assert pause.after_end(0.1) == RESTART_PAUSE_MAX_S


def test_a_bookie_that_served_for_long_starts_again_soon() -> None:
    pause = RestartPause()
    for _ in range(6):
        pause.after_end(0.1)
    assert pause.after_end(STEADY_S) == 1
    assert pause.failures == 1
