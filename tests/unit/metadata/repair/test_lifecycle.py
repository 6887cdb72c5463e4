"""States of a bookie: their transitions (rule 9.1) and their stored form."""

import itertools

import msgpack
import pytest

from metadata.errors import InvalidLifecycleChangeError, MetadataFormatError
from metadata.ids import BookieId
from metadata.repair.lifecycle import (
    LIFECYCLE_CODEC,
    UNCHANGED,
    BookieLifecycle,
    Lifecycle,
    changed,
    may_become,
)

A = BookieId("bookie-a")
ALLOWED = [
    ("active", "draining"),
    ("active", "lost"),
    ("active", "limbo"),
    ("draining", "active"),
    ("draining", "drained"),
    ("draining", "limbo"),
    ("drained", "active"),
    ("drained", "removed"),
    ("lost", "active"),
    ("lost", "draining"),
    ("lost", "drained"),
    ("drained", "lost"),
    ("lost", "limbo"),
    ("limbo", "drained"),
    ("limbo", "lost"),
    ("unreadable", "draining"),
]


def test_a_bookie_without_a_record_is_active() -> None:
    assert BookieLifecycle(Lifecycle.ACTIVE, 0, "") == UNCHANGED


@pytest.mark.parametrize(("state", "to"), list(itertools.product(Lifecycle, Lifecycle)))
def test_states_change_as_the_table_says(state: Lifecycle, to: Lifecycle) -> None:
    current = BookieLifecycle(state, 5, "before")
    if state is to:
        assert may_become(state, to)
        assert changed(A, current, to, "again", 9) is current
    elif (state, to) in ALLOWED:
        assert may_become(state, to)
        assert changed(A, current, to, "now", 9) == BookieLifecycle(to, 9, "now")
    else:
        assert not may_become(state, to)
        with pytest.raises(InvalidLifecycleChangeError) as raised:
            changed(A, current, to, "now", 9)
        assert f"bookie bookie-a is {state} and cannot become {to}: " in str(raised.value)
        assert (raised.value.state, raised.value.wanted) == (state, to)
        assert raised.value.what_next


def test_only_an_active_bookie_may_store() -> None:
    assert [lifecycle for lifecycle in Lifecycle if lifecycle.may_store] == [Lifecycle.ACTIVE]


@pytest.mark.parametrize(
    "state", [lifecycle for lifecycle in Lifecycle if lifecycle != "unreadable"]
)
def test_a_record_round_trips(state: Lifecycle) -> None:
    record = BookieLifecycle(state, 1_700_000_000_000, "disk replaced")
    assert LIFECYCLE_CODEC.unpack("/a", LIFECYCLE_CODEC.pack("/a", record)) == record


@pytest.mark.parametrize(
    "fields",
    [
        [1, "gone", 0, ""],
        [1, "unreadable", 0, ""],
        [1, 1, 0, ""],
        [1, "lost", -1, ""],
        [1, "lost", "0", ""],
        [1, "lost", 0, b""],
        [1, "lost", 0],
        [2, "lost", 0, ""],
    ],
)
def test_other_values_are_a_format_error(fields: list[object]) -> None:
    with pytest.raises(MetadataFormatError, match="/a"):
        LIFECYCLE_CODEC.unpack("/a", msgpack.packb(fields))
