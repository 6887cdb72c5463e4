"""Times and plans in forms, whatever is in them."""

import pytest

from quire.console.topics.groups import CHANGES_MAX, OffsetChange, changes_in, time_of
from quire.errors import UsageError
from quire.operate.topics import Place


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01", 0),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01T01:00+01:00", 0),
        ("9" * 19, 2**63 - 1),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert time_of(text) == ms


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 20, "1970-13-01", "\u0661"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(UsageError):
        time_of(text)


def test_what_the_plan_shows_is_committed() -> None:
    plan = [OffsetChange(Place("t", 1), 5, 7), OffsetChange(Place("a.b-c_d", 0), -1, 0)]
    form = {change.field: str(change.after) for change in plan} | {"form_token": "x"}
    assert changes_in(form) == {change.place: change.after for change in plan}


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"offset:": "1"},
        {"offset:1": "1"},
        {"offset:1:": "1"},
        {"offset:x:t": "1"},
        {"offset:1:t": ""},
        {"offset:1:t": "\u0661"},
        {"offset:1:t": "9" * 30},
        {f"offset:{n}:t": "1" for n in range(CHANGES_MAX + 1)},
    ],
)
def test_a_damaged_plan_is_refused(form: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        changes_in(form)
