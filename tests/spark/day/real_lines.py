"""Real lines in numbered files: the input of a day.

The lines are those of a given file, or of this repository's history and of the installed Python
packages; they repeat if there are too few. Leaves the comparison to `contents`.

Format of a file: lines of `number TAB text`, numbers from 0 without gaps over all files. After the
last line of text comes a closing line in a file of its own: its time is after the end of all other
windows, so a query that has read it has closed them.
"""

import subprocess
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tests.spark.day.times import LINES_PER_WINDOW

FILE_BYTES_MAX = 2 << 20
"""Spark reads a file below 4 MiB in one task, so the lines of a link keep their order."""
LINE_BYTES_MAX = 1 << 20
REPOSITORY = Path(__file__).parents[3]
CLOSING_TEXT = b"end of the day"


def numbered_files(
    directory: Path, line_count: int, link_count: int, given: Path | None = None
) -> list[list[Path]]:
    """Write the files of each link; return their paths. The last link is the closing line alone.

    Raises ValueError if there are no lines, or a line is too long.
    """
    lines = enumerate(islice(_repeated(given), line_count))
    per_link = -(-line_count // link_count)
    links = [
        list(_write_link(directory, link, islice(lines, per_link))) for link in range(link_count)
    ]
    closing = directory / "closing.txt"
    closing.write_bytes(b"%d\t%s\n" % (line_count + 2 * LINES_PER_WINDOW, CLOSING_TEXT))
    return [*filter(None, links), [closing]]


def _write_link(directory: Path, link: int, lines: Iterator[tuple[int, bytes]]) -> Iterator[Path]:
    part = 0
    line = next(lines, None)
    while line is not None:
        path = directory / f"link-{link:04}-{part:04}.txt"
        size = 0
        with path.open("wb") as file:
            while line is not None and size < FILE_BYTES_MAX:
                number, text = line
                if len(text) > LINE_BYTES_MAX:
                    raise ValueError(
                        f"line {number} has {len(text)} bytes, and the maximum is {LINE_BYTES_MAX}:"
                        " give a file with shorter lines"
                    )
                size += file.write(b"%d\t%s\n" % (number, text))
                line = next(lines, None)
        yield path
        part += 1


def _repeated(given: Path | None) -> Iterator[bytes]:
    while True:
        is_empty = True
        for line in _history_and_packages() if given is None else _file_lines(given):
            is_empty = False
            yield line
        if is_empty:
            raise ValueError(f"{given or REPOSITORY} has no lines: give another file")


def _history_and_packages() -> Iterator[bytes]:
    if (REPOSITORY / ".git").exists():
        words = ["git", "-C", str(REPOSITORY), "log", "--patch", "--no-color"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                yield from map(_cleaned, process.stdout)
            finally:
                process.kill()
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        yield from _file_lines(path)


def _file_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from map(_cleaned, file)


def _cleaned(line: bytes) -> bytes:
    """Remove the ends of lines: Spark takes a single carriage return for one."""
    return line.rstrip(b"\n").replace(b"\r", b"")
