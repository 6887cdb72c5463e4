"""How options are declared and read, for a table of a server that does not exist."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pytest

from bookie.options import BOOKIE
from quire.options import OptionError, Options, OptionTable, Value, option, switch
from quire.server.overriding import override


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def even(text: str) -> None:
    if len(text) % 2:
        raise ValueError(f"{text!r} is odd")


@dataclass(frozen=True, slots=True)
class Shared(Options):
    is_loud: bool = switch("of every server")


@dataclass(frozen=True, slots=True)
class Lamp(Shared):
    path: str = option("", "a path", is_required=True)
    colour: Colour = option(Colour.RED, "a choice")
    bytes_per_s: int = option(7, "a rate", low=0, high=9)
    pause_ms: float | None = option(None, "a pause", above=0)
    reads_per_s_max: int = option(1, "a count per time", low=1)
    word: str = option("", "a text", parse=even, variable="SHARED")

    @override
    def contradictions(self) -> Iterator[str]:
        if self.bytes_per_s < 5 and self.colour is Colour.RED:
            yield "bytes_per_s is too small for colour"


LAMP = OptionTable("lamp", Lamp)


def load(text: str | None = None, variables: dict[str, str] | None = None, **flags: Value) -> Lamp:
    return LAMP.load(text, variables or {}, {"path": "p", **flags})


def errors(variables: dict[str, str], **flags: Value) -> list[str]:
    with pytest.raises(OptionError) as caught:
        LAMP.load(None, variables, flags)
    return str(caught.value).splitlines()


def test_own_options_come_before_those_of_the_base() -> None:
    assert next(iter(LAMP.options)) == "path"
    assert list(LAMP.options)[-1] == "is_loud"


@pytest.mark.parametrize(
    ("name", "unit", "bounds"),
    [
        ("bytes_per_s", "B/s", "0 to 9"),
        ("pause_ms", "ms", "above 0, or None"),
        ("reads_per_s_max", "reads/s", "at least 1"),
        ("colour", "", "red, blue"),
        ("word", "", ""),
    ],
)
def test_the_unit_and_the_bounds_are_shown(name: str, unit: str, bounds: str) -> None:
    assert (LAMP.options[name].unit, LAMP.options[name].bounds) == (unit, bounds)


def test_texts_become_values_of_the_type() -> None:
    lamp = load(variables={"QUIRE_LAMP_COLOUR": "blue", "QUIRE_LAMP_PAUSE_MS": "3"})
    assert lamp.colour is Colour.BLUE
    assert lamp.pause_ms == 3.0
    assert load(variables={"QUIRE_LAMP_PAUSE_MS": "none"}).pause_ms is None


def test_the_server_has_a_variable_of_its_own_beside_the_shared_one() -> None:
    assert load(variables={"SHARED": "ab"}).word == "ab"
    assert load(variables={"SHARED": "ab", "QUIRE_LAMP_WORD": "cd"}).word == "cd"


def test_a_file_goes_before_the_variables_and_a_flag_before_the_file() -> None:
    """So a variable for commands, such as QUIRE_METADATA, moves no server to another cluster."""
    variables = {"QUIRE_METADATA": "zk://one:1/q", "QUIRE_BOOKIE_METADATA": "zk://two:1/q"}
    text, flag = '[bookie]\ndata_dir = "d"\nmetadata = "zk://three:1/q"\n', "zk://four:1/q"
    assert BOOKIE.load(text, variables, {}).metadata == "zk://three:1/q"
    assert BOOKIE.load(text, variables, {"metadata": flag}).metadata == flag


def test_all_errors_come_at_once_and_none_that_follows_from_another() -> None:
    assert errors({"QUIRE_LAMP_COLOUR": "green", "SHARED": "odd"}, bytes_per_s=1) == [
        "QUIRE_LAMP_COLOUR must be one of red, blue, not 'green'",
        "word: 'odd' is odd",
        "path is not set: give --path, or path in the file",
    ]
    assert errors({}, bytes_per_s=1, path="p") == ["bytes_per_s is too small for colour"]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True])
def test_a_number_is_finite_and_within_its_bounds(value: float) -> None:
    (error,) = errors({}, path="p", pause_ms=value)
    assert error.startswith("--pause-ms must be ")


def test_flags_give_the_same_options_again() -> None:
    lamp = load(bytes_per_s=6, is_loud=True)
    assert LAMP.flags_of(lamp) == ["--path=p", "--bytes-per-s=6", "--is-loud"]
