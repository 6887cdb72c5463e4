"""Limits that contradict each other are refused when they are given."""

import pytest

from ledger_client import ClientConfig


def test_a_writer_cannot_overrun_the_bound_by_sending_again() -> None:
    with pytest.raises(ValueError, match="must not be less than window_bytes_max"):
        ClientConfig(unanswered_bytes_max=1_000)
    assert (
        ClientConfig(unanswered_bytes_max=1_000, window_bytes_max=1_000).window_bytes_max == 1_000
    )
