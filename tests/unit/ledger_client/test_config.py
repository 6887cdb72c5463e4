"""Contradictory limits are refused at construction."""

import pytest

from ledger_client import ClientConfig


def test_a_writer_cannot_overrun_the_bound_by_sending_again() -> None:
    with pytest.raises(ValueError, match="lower the window"):
        ClientConfig(unanswered_bytes_max=1_000)
    fitting = ClientConfig(
        entry_bytes_max=4_000,
        unanswered_bytes_max=11_000,
        window_bytes_max=5_000,
        window_entries_max=11,
    )
    assert fitting.window_entries_max == 11


def test_one_entry_cannot_overrun_the_bound() -> None:
    """A window without entries admits one of any size."""
    with pytest.raises(ValueError, match="lower entry_bytes_max"):
        ClientConfig(unanswered_bytes_max=110_000, window_bytes_max=5_000, window_entries_max=11)


@pytest.mark.parametrize("count", [0, 1_001])
def test_a_block_of_ids_has_a_size_that_gateways_take(count: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 1000"):
        ClientConfig(ledger_ids_at_once=count)
