"""Values out of bounds and contradictory limits are refused at construction."""

import math

import pytest

from ledger_client import ClientConfig
from quire.options import described

OPTIONS = described(ClientConfig)
NUMBERS = {name: option for name, option in OPTIONS.items() if option.kind in (int, float)}
MAY_BE_ZERO = [name for name, option in NUMBERS.items() if option.facts.low == 0]


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


def test_every_field_that_is_no_switch_is_a_number_with_bounds() -> None:
    assert {option.kind for name, option in OPTIONS.items() if name not in NUMBERS} == {bool}
    assert all(number.bounds and number.facts.help for number in NUMBERS.values())


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_bounds_is_refused(name: str) -> None:
    wrong: list[object] = [-1, math.nan, math.inf, "7", True]
    if name not in MAY_BE_ZERO:
        wrong.append(0)
    high = NUMBERS[name].facts.high
    if high is not None:
        wrong.append(high + 1)
    if NUMBERS[name].kind is int:
        wrong.append(1.5)
    if not NUMBERS[name].is_optional:
        wrong.append(None)
    for value in wrong:
        with pytest.raises(ValueError, match=f"^{name} must be "):
            ClientConfig(**{name: value})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("name", MAY_BE_ZERO)
def test_some_numbers_may_be_zero(name: str) -> None:
    assert getattr(ClientConfig(**{name: 0}), name) == 0  # type: ignore[arg-type]  # any number


def test_a_refusal_says_what_to_give() -> None:
    with pytest.raises(ValueError, match=r"^ledger_ids_at_once must be from 1 to 1000, not 0$"):
        ClientConfig(ledger_ids_at_once=0)
    with pytest.raises(ValueError, match=r"^copy_bytes_per_s must be above 0, or None, not 0.0$"):
        ClientConfig(copy_bytes_per_s=0)
