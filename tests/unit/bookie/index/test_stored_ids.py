"""Ids of stored states compared with a set."""

import random

import pytest

from bookie.index import index_pages, stored_states
from bookie.index.stored_states import StoredIds
from metadata.ids import LEDGER_ID_MAX


def keys_of(ids: list[int]) -> list[bytes]:
    return [index_pages.state_key(each) for each in ids]


@pytest.mark.parametrize("seed", range(20))
def test_ids_are_those_of_a_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_states, "ARRAY_IDS_MAX", 4)
    rng = random.Random(seed)
    loaded = sorted(rng.sample(range(100), rng.randrange(30)))
    ids, twin = StoredIds(), set(loaded)
    half = len(loaded) // 2
    ids.append_keys(keys_of(loaded[:half]))
    ids.append_keys(keys_of(loaded[half:]))
    for _ in range(300):
        ledger_id = rng.randrange(100)
        if rng.random() < 0.5:
            ids.add(ledger_id)
            twin.add(ledger_id)
        else:
            ids.discard(ledger_id)
            twin.discard(ledger_id)
        assert len(ids) == len(twin)
        assert [number for number in range(100) if number in ids] == sorted(twin)


def test_full_range_of_ids() -> None:
    ids = StoredIds([LEDGER_ID_MAX, 0])
    ids.append_keys([])
    assert 0 in ids
    assert LEDGER_ID_MAX in ids
    assert 1 not in ids


def test_rising_ids_fill_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_states, "ARRAY_IDS_MAX", 4)
    ids = StoredIds(range(40))
    assert [len(array) for array in ids._arrays] == [4] * 10
