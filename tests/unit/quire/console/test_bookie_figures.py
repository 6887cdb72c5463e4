"""Figures of a bookie from what it answers, whatever that is."""

import pytest

from quire.console.pages.bookie_page import conditions_of, storage_figures, sync_times

NAME = "quire_bookie_storage_sync_latency_seconds"


def test_syncs_are_summed_up() -> None:
    lines = [f"# TYPE {NAME} histogram"]
    lines += [f'{NAME}_bucket{{le="{le}"}} {n}' for le, n in (("0.1", 10), ("1", 40), ("+Inf", 40))]
    found = sync_times("\n".join([*lines, f"{NAME}_sum 8", f"{NAME}_count 40", ""]))
    assert found is not None
    assert (found.count, found.mean_s, found.p50_s, found.p99_s) == (40, 0.2, 1, 1)


@pytest.mark.parametrize("text", ["", "x", "{", f'{NAME}_bucket{{le="x"}} 1\n', "a 1\n"])
def test_other_text_has_no_syncs(text: str) -> None:
    assert sync_times(text) is None


@pytest.mark.parametrize(
    "state", [None, 1, [], {}, {"storage": 3}, {"conditions": 3}, {"conditions": [1]}]
)
def test_other_states_have_no_figures(state: None) -> None:
    assert storage_figures(state) == []
    assert conditions_of(state) == []
