"""The demo's source yields every byte once, and its view prints the right lines."""

import hashlib
import io
from pathlib import Path

import pytest

from quire import demo
from quire.demo import (
    DemoSource,
    DemoStatus,
    FragmentLine,
    LiveView,
    PlainView,
    describe_fragment,
    describe_status,
    open_source,
    view_for,
)
from quire.errors import UsageError

STATUS = DemoStatus(
    share_done=0.5,
    entries_per_s=1234.0,
    lac=99,
    fragments=[FragmentLine(0, 49, ("a", "b")), FragmentLine(50, None, ("b", "c"))],
    bookies=[("a", "killed"), ("b", "up"), ("c", "up")],
)


def test_lines_are_the_files_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LINE_BYTES_MAX", 8)
    texts = [b"one\n\ntwo", b"", b"a line longer than the limit\r\n\xff"]
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    source = DemoSource("files", paths)
    lines = list(source.lines())
    assert b"".join(lines) == b"".join(texts)
    assert max(map(len, lines)) <= 8
    assert (source.line_count, source.read_bytes) == (len(lines), source.total_bytes)
    assert source.digest() == hashlib.sha256(b"".join(texts)).hexdigest()
    assert source.share_read == 1.0


def test_the_default_source_is_the_standard_library() -> None:
    source = open_source(None)
    assert source.total_bytes > 1_000_000
    assert next(source.lines())


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(UsageError, match="is not a file"):
        open_source("/no/such/file")


def test_lines_of_the_view() -> None:
    assert describe_status(STATUS) == (
        " 50%      1,234 entries/s  LAC 99  ensemble b, c  fragments 2"
    )
    assert describe_fragment(STATUS.fragments[1]).split() == [
        "entries",
        "50",
        "-",
        "...",
        "on",
        "b,",
        "c",
    ]
    assert "(none)" in describe_fragment(FragmentLine(10, 9, ("a",)))


def test_a_terminal_gets_the_live_view_and_a_pipe_plain_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:  # type: ignore[explicit-override]
            return True

    for stream, kind in ((Terminal(), LiveView), (io.StringIO(), PlainView)):
        view = view_for(stream)
        assert isinstance(view, kind)
        for _ in range(4):
            view.show(STATUS)
        view.rest()
        view.say("done [all]")
        text = stream.getvalue()
        assert "1,234 entries/s" in text
        assert "done [all]" in text
