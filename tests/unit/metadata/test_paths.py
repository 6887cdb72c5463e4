"""Paths of ledgers: order, limited children, and the way back to the id."""

from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.paths import (
    DELETION_SHARDS,
    LEVEL_DIGITS,
    deletion_path,
    is_level_name,
    ledger_id_of,
    ledger_path,
    level_names,
)

ledger_ids = st.integers(0, LEDGER_ID_MAX).map(LedgerId)


@given(ledger_ids)
def test_names_lead_back_to_the_id(ledger_id: LedgerId) -> None:
    names = level_names(ledger_id)
    assert ledger_id_of(names) == ledger_id
    assert all(is_level_name(level, name) for level, name in enumerate(names))


@given(ledger_ids, ledger_ids)
def test_names_sort_as_ids(one: LedgerId, other: LedgerId) -> None:
    assert (one < other) == (level_names(one) < level_names(other))


def test_paths_read_as_documented() -> None:
    assert ledger_path(LedgerId(1234)) == "/ledgers/0000/000/000/000/001/234"
    assert ledger_path(LedgerId(LEDGER_ID_MAX)) == "/ledgers/9223/372/036/854/775/807"
    assert deletion_path(LedgerId(DELETION_SHARDS + 3)) == f"/deleted/3/{DELETION_SHARDS + 3}"


def test_levels_are_bounded() -> None:
    assert max(10**digits for digits in LEVEL_DIGITS) == 10_000


def test_foreign_names_are_recognised() -> None:
    assert ledger_id_of(("9999", "999", "999", "999", "999", "999")) is None
    for name in ("12", "1234", "abc", "-12", "1²3"):
        assert not is_level_name(1, name)
