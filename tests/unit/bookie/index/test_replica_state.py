"""Decisions about one ledger, without any storage."""

import struct

import pytest

from bookie.index import index_pages, replica_state
from bookie.index.replica_state import ReplicaState, UnsavedLedgers
from bookie.storage.ledgers import Ledgers
from bookie.wire.batch import FLAG_SLICE, BatchHeader
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


def slice_of(header: BatchHeader) -> BatchHeader:
    return header._replace(flags=FLAG_SLICE, length_before=500)


def test_a_slice_brings_no_lac_and_no_length() -> None:
    state, header = state_with(), make_run(7, 0, 3, lac=1).header
    assert not replica_state.note_accepted(state, slice_of(header))
    replica_state.note_stored(state, slice_of(header))
    assert (state.accepted_highest, state.highest) == (2, 2)
    assert (state.lac, state.length) == (NO_ENTRY, 0)
    assert replica_state.note_accepted(state, header)
    assert state.lac == 1
    assert not replica_state.note_accepted(state, header), "the LAC did not advance again"


def test_the_length_is_that_of_the_highest_batch() -> None:
    state = state_with()
    first, second = make_run(7, 0, 3, size=10).header, make_run(7, 3, 2, size=10).header
    replica_state.note_stored(state, second._replace(length_before=30))
    assert (state.highest, state.length) == (4, 50)
    replica_state.note_stored(state, first)
    assert (state.highest, state.length) == (4, 50)


def test_a_batch_that_was_not_accepted_here_counts_once_it_is_stored() -> None:
    """A replay of the log stores batches that an earlier process accepted."""
    state = state_with()
    replica_state.note_stored(state, make_run(7, 0, 3).header)
    assert state.accepted_highest == 2
    replica_state.note_accepted(state, make_run(7, 3, 2).header)
    replica_state.note_stored(state, make_run(7, 1, 1).header)
    assert state.accepted_highest == 4


def test_the_lac_never_goes_back() -> None:
    state = state_with()
    assert replica_state.note_lac(state, 5)
    assert not replica_state.note_lac(state, 5)
    assert not replica_state.note_lac(state, 3)
    assert state.lac == 5


def test_limbo_keeps_a_fence_and_may_add_one() -> None:
    for was_fenced, is_durable, fence in [
        (False, False, False),
        (False, False, True),
        (True, False, False),
        (True, False, True),
        (True, True, False),
    ]:
        state = state_with(fenced=was_fenced)
        state.is_fence_durable = is_durable
        replica_state.enter_limbo(state, fence=fence)
        assert state.limbo
        assert state.fenced is (was_fenced or fence)
        assert state.is_fence_durable is (is_durable or fence)


def test_a_released_ledger_is_empty_fenced_and_unknown() -> None:
    state = state_with()
    replica_state.note_stored(state, make_run(7, 0, 3).header)
    state.indexed_highest = 2
    replica_state.release(state)
    assert (state.fenced, state.is_fence_durable) == (True, True)
    assert (state.limbo, state.released) == (True, True)
    assert (state.highest, state.accepted_highest, state.indexed_highest) == (NO_ENTRY,) * 3
    assert state.length == 0


def test_only_a_known_ledger_has_a_lac() -> None:
    state = state_with()
    state.lac = 5
    assert replica_state.advertised_lac(state) == 5
    assert replica_state.advertised_lac(None) == NO_ENTRY


# -- what is unsaved -------------------------------------------------------------------------------


def clean_state() -> ReplicaState:
    """Return a state whose stored form is up to date and that eviction has checked."""
    state = state_with()
    for _ in range(3):
        state.touch()
        state.unsaved.take()
    assert not state.is_dirty
    state.was_used = False
    return state


def test_a_change_makes_the_stored_form_out_of_date() -> None:
    header = make_run(7, 0, 3, lac=1).header
    changes = [
        ReplicaState.touch,
        lambda state: replica_state.note_lac(state, 5),
        lambda state: replica_state.note_stored(state, header),
        lambda state: replica_state.enter_limbo(state, fence=False),
        replica_state.release,
    ]
    for change in changes:
        state = clean_state()
        change(state)
        assert (state.is_dirty, state.was_used) == (True, True)
        assert [*state.unsaved.take()] == [7]
        assert not state.is_dirty
        assert [*state.unsaved.take()] == []


def test_a_state_that_changed_in_no_generation_is_saved_however_many_there_were() -> None:
    unsaved = UnsavedLedgers()
    for _ in range(5):
        assert not ReplicaState(LedgerId(7), unsaved).is_dirty
        unsaved.take()


# -- the stored form -------------------------------------------------------------------------------


def stored_key(ledger_id: int) -> bytes:
    return index_pages.state_key(LedgerId(ledger_id))


def test_the_kind_of_a_stored_form_is_read_without_decoding_it() -> None:
    plain, released = state_with(fenced=True, limbo=True), state_with()
    replica_state.release(released)
    forms = [
        plain.encode(3),
        released.encode(-1),
        replica_state.encode_deleted(LedgerId(7), has_runs=False),
        replica_state.encode_deleted(LedgerId(7), has_runs=True),
    ]
    kinds = [
        (
            replica_state.is_stored_released(form),
            replica_state.is_stored_deleted(form),
            replica_state.has_stored_runs_left(form),
        )
        for form in forms
    ]
    assert kinds == [
        (False, False, False),
        (True, False, False),
        (False, True, False),
        (False, True, True),
    ]
    assert replica_state.decode(LedgerId(7), forms[2]) is False
    assert replica_state.decode(LedgerId(7), forms[3]) is True
    again = replica_state.decode(LedgerId(7), forms[1])
    assert isinstance(again, ReplicaState)
    assert again.released
    plain_again = replica_state.decode(LedgerId(7), forms[0])
    assert isinstance(plain_again, ReplicaState)
    assert not plain_again.released


def test_a_deleted_ledger_is_stored_without_any_contents() -> None:
    for has_runs, flags in ((False, 4), (True, 4 | 8)):
        form = replica_state.encode_deleted(LedgerId(7), has_runs=has_runs)
        assert form[:-4] == struct.pack("<Bqqq32s", flags, -1, -1, 0, bytes(32))


def test_damage_of_a_stored_form_is_noticed_without_decoding_it() -> None:
    form = state_with().encode(3)
    assert not replica_state.is_stored_damaged(stored_key(7), form)
    assert replica_state.is_stored_damaged(stored_key(8), form)
    assert replica_state.is_stored_damaged(stored_key(7), form[:-1])
    assert replica_state.is_stored_damaged(stored_key(7), form + b"\0")
    for place in range(len(form)):
        damaged = bytearray(form)
        damaged[place] ^= 1
        assert replica_state.is_stored_damaged(stored_key(7), bytes(damaged))


def test_a_decoded_state_reports_its_changes() -> None:
    form, unsaved = state_with().encode(3), UnsavedLedgers()
    state = replica_state.decode(LedgerId(7), form, unsaved)
    assert isinstance(state, ReplicaState)
    assert not state.is_dirty
    state.touch()
    assert [*unsaved.ledger_ids] == [7]
    alone = replica_state.decode(LedgerId(7), form)
    assert isinstance(alone, ReplicaState)
    alone.touch()
    assert [*alone.unsaved.ledger_ids] == [7]


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
