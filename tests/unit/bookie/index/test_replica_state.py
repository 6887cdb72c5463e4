"""Decisions about one ledger, without any storage."""

import pytest

from bookie.index import replica_state
from bookie.index.replica_state import ReplicaState
from bookie.storage.ledgers import Ledgers
from bookie.wire.messages import Status
from metadata.ids import NO_ENTRY, LedgerId
from tests.support.bookie.batches import make_run

KEY, OTHER = b"k" * 32, b"o" * 32


def state_with(
    *, fenced: bool = False, limbo: bool = False, key: bytes | None = KEY
) -> ReplicaState:
    state = ReplicaState(LedgerId(7))
    state.fenced, state.limbo, state.master_key = fenced, limbo, key
    return state


@pytest.mark.parametrize(
    ("stored", "presented", "allowed"),
    [
        (KEY, KEY, True),
        (KEY, OTHER, False),
        (KEY, b"", False),
        (KEY, None, True),
        (None, OTHER, True),
        (None, None, True),
    ],
)
def test_authorization(stored: bytes | None, presented: bytes | None, allowed: bool) -> None:
    assert replica_state.is_authorized(state_with(key=stored), presented) is allowed


def test_negatives_are_unknown_in_limbo() -> None:
    assert replica_state.negative(None, is_limbo=False) is Status.NO_SUCH_LEDGER
    assert replica_state.negative(None, is_limbo=True) is Status.UNKNOWN
    assert replica_state.negative(state_with(), is_limbo=False) is Status.NO_SUCH_ENTRY
    assert replica_state.negative(state_with(), is_limbo=True) is Status.UNKNOWN
    assert replica_state.negative(state_with(limbo=True), is_limbo=False) is Status.UNKNOWN


def test_refused_adds_no_longer_count_when_nothing_is_queued() -> None:
    state = state_with()
    first, second = make_run(7, 0, 3).header, make_run(7, 3, 2, lac=1).header
    assert not replica_state.note_accepted(state, first)
    assert replica_state.note_accepted(state, second)
    assert (state.accepted_highest, state.highest, state.lac) == (4, NO_ENTRY, 1)
    replica_state.note_stored(state, first)
    replica_state.note_unqueued(state)
    assert (state.accepted_highest, state.highest) == (4, 2)
    replica_state.note_unqueued(state)  # the second was not stored
    assert (state.accepted_highest, state.highest) == (2, 2)


def test_the_lac_never_goes_back() -> None:
    state = state_with()
    assert replica_state.note_lac(state, 5)
    assert not replica_state.note_lac(state, 5)
    assert not replica_state.note_lac(state, 3)
    assert state.lac == 5


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("limbo", [False, True])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_stored_state_is_read_back(fenced: bool, limbo: bool, key: bytes | None) -> None:
    state = state_with(fenced=fenced, limbo=limbo, key=key)
    state.lac, state.length = 4, 99
    value = state.encode(9)
    again = replica_state.decode(LedgerId(7), value)
    assert isinstance(again, ReplicaState)
    assert (again.fenced, again.limbo, again.master_key) == (fenced, limbo, key)
    assert (again.lac, again.highest, again.indexed_highest, again.length) == (4, 9, 9, 99)
    assert replica_state.decode(LedgerId(8), value) is None
    for place in range(len(value)):
        damaged = bytearray(value)
        damaged[place] ^= 1
        assert replica_state.decode(LedgerId(7), bytes(damaged)) is None


def test_changes_after_take_unsaved_are_unsaved_again() -> None:
    ledgers = Ledgers(hot_max=10)
    ledgers.get_or_make(LedgerId(1))
    ledgers.delete(3, has_runs=False)
    assert [*ledgers.take_unsaved()] == [1, 3]
    ledgers.note_saved()
    assert [*ledgers.take_unsaved()] == []
    ledgers.note_saved()
    ledgers.states[1].touch()
    assert [*ledgers.take_unsaved()] == [1]
    ledgers.get_or_make(LedgerId(2))
    ledgers.mark_unsaved()
    assert [*ledgers.take_unsaved()] == [2, 1]


def test_a_watch_is_called_until_cancelled() -> None:
    ledgers, calls = Ledgers(hot_max=10), list[str]()
    cancel_first = ledgers.watch(1, lambda: calls.append("first"))
    cancel_second = ledgers.watch(1, lambda: calls.append("second"))
    ledgers.notify(1)
    ledgers.notify(2)
    cancel_first()
    cancel_first()
    ledgers.notify(1)
    cancel_second()
    ledgers.notify(1)
    assert calls == ["first", "second", "second"]
