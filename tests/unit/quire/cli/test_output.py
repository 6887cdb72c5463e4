"""Results in the formats for pipes, programs and people."""

import io
import json
import re

import pytest

from ledger_client import MetadataUnavailableError
from metadata.ids import LedgerId
from quire.cli.output import ROWS_MEASURED_MAX, Output
from quire.cli.progress import describe_progress
from quire.errors import ExitCode, UsageError, exit_code
from quire.operate.fields import describe_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:  # type: ignore[explicit-override]
        return True


def output(*, as_json: bool = False, terminal: bool = False) -> Output:
    stream = Terminal() if terminal else io.StringIO()
    return Output(as_json=as_json, results=stream, remarks=io.StringIO())


def text_of(out: Output) -> str:
    assert isinstance(out.results, io.StringIO)
    return out.results.getvalue()


def remarks_of(out: Output) -> str:
    assert isinstance(out.remarks, io.StringIO)
    return out.remarks.getvalue()


def test_a_table_aligns_its_columns() -> None:
    out = output()
    with out.listing("id", "bookie_count") as listing:
        listing.add({"id": "long-name", "bookie_count": 3})
        listing.add({"id": "b", "bookie_count": None, "unseen": 1})
    assert text_of(out).splitlines() == ["ID         BOOKIE COUNT", "long-name  3", "b          -"]


HOSTILE = "\x1b]0;title\x07red\rone\ntwo\u202eabc"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
SHOWN = r"\x1b]0;title\x07red\rone\ntwo\u202eabc"


@pytest.mark.parametrize("terminal", [False, True])
def test_text_of_a_client_reaches_no_terminal_as_it_is(*, terminal: bool) -> None:
    out = output(terminal=terminal)
    out.record({"id": HOSTILE, "metadata": {HOSTILE: [HOSTILE]}})
    with out.listing("note") as listing:
        listing.add({"note": HOSTILE})
    out.line(f"one\n\ttwo {HOSTILE}")
    out.failure(UsageError(f"no ledger {HOSTILE}", try_next=HOSTILE), ExitCode.USAGE)
    text = STYLE.sub("", text_of(out) + remarks_of(out))
    assert all(character.isprintable() or character in "\n\t" for character in text)
    assert text.count(SHOWN) == 4  # the id, a key and its value, and the table
    assert "one\n\ttwo" in text


def test_a_long_value_with_names_has_a_line_for_each_name() -> None:
    out = output()
    numbers = {f"number_{number:02}": number for number in range(50)}
    out.record({"id": "a", "statistics": numbers, "few": {"a": 1, "b": 2}})
    lines = text_of(out).splitlines()
    assert lines[:4] == ["id          a", "statistics", "  number 00  0", "  number 01  1"]
    assert lines[-1] == "few         a=1, b=2"
    assert len(lines) == 3 + len(numbers)


def test_entries_are_printed_on_a_terminal_as_text_of_a_line() -> None:
    data = b"a\tb\x1b[31m\n\xff\xe6\x97\xa5"
    assert output(terminal=True).data_line(data).decode() == "a\tb\\x1b[31m\\n\\xff日\n"
    assert output().data_line(data) == data + b"\n"


def test_a_long_table_loses_no_row() -> None:
    out = output()
    with out.listing("n") as listing:
        for n in range(ROWS_MEASURED_MAX + 10):
            listing.add({"n": n})
    assert text_of(out).split() == ["N", *map(str, range(ROWS_MEASURED_MAX + 10))]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_rows_make_one_document(count: int) -> None:
    out = output(as_json=True)
    with out.listing("n") as listing:
        for n in range(count):
            listing.add({"n": n, "more": [n]})
    assert json.loads(text_of(out)) == [{"n": n, "more": [n]} for n in range(count)]


def test_a_terminal_gets_a_table_with_the_same_cells() -> None:
    out = output(terminal=True)
    with out.listing("id") as listing:
        listing.add({"id": "[b]ookie"})
    assert "[b]ookie" in text_of(out)


def test_a_record_is_one_json_object() -> None:
    out = output(as_json=True)
    out.record({"a": 1, "b": None})
    assert json.loads(text_of(out)) == {"a": 1, "b": None}


def test_a_failure_says_what_to_try_on_the_standard_error() -> None:
    out = output()
    out.failure(UsageError("no cluster", try_next="quire up"), 2)
    assert text_of(out) == ""
    assert remarks_of(out) == "quire: no cluster\n       try: quire up\n"


def test_a_failure_is_json_for_a_program() -> None:
    out = output(as_json=True)
    out.failure(UsageError("no cluster"), 2)
    told = json.loads(remarks_of(out))
    assert told == {"error": "UsageError", "message": "no cluster", "try_next": "", "exit_code": 2}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")]
)
def test_bytes_are_described(count: int, text: str) -> None:
    assert describe_bytes(count) == text


def test_progress_is_described_with_and_without_a_total() -> None:
    assert describe_progress(50, 200, 2.0, "entries").startswith("[#######")
    assert " 25%  50/200 entries  25 entries/s" in describe_progress(50, 200, 2.0, "entries")
    assert describe_progress(50, None, 2.0, "entries") == "50 entries  25 entries/s"
    assert describe_progress(3, 33, 60.0, "runs").endswith("3/33 runs  about 10 min left")


def test_a_failure_of_a_writer_that_ended_may_be_repeated_with_another_one() -> None:
    """The status says so too: the command has another writer when it is run again."""
    out = output(as_json=True)
    error = MetadataUnavailableError("no answer", ledger_id=LedgerId(3)).as_end_of_writer()
    assert not error.retriable
    out.failure(error, exit_code(error))
    found = json.loads(remarks_of(out))
    assert (found["retriable"], found["exit_code"]) == (True, ExitCode.UNAVAILABLE)
