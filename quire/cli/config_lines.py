"""Lines of a configuration file, for errors about its options.

Leaves reading and checking the file to `quire.server.option_reading`; this only looks for lines
that begin like those errors name them.

Invariant: an error without a known line is reported without one.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from quire.server.option_reading import TABLE_IN_FILE

_TABLE: Final = re.compile(r"\s*(\[{1,2})\s*(\w+)\s*\]{1,2}")
_ASSIGNMENT: Final = re.compile(r"\s*\"?(\w+)\"?\s*=")
_NAMED: Final = re.compile(r"(?:unknown option in )?(\[{1,2}\w+\]{1,2}(?: \d+)?):? (\w+)")
_TOML: Final = re.compile(r"\(at line (\d+),")
_NAME: Final = re.compile(r"\w+")


def located(error: str, path: str, file_text: str, table: str) -> str:
    """Return an error as `path:line: error`, or `path: error` if no line sets an option that it
    names. `table` is the title of the table that the error is about, such as `[bookie]`.
    """
    lines = _lines_of(file_text)
    line = _line(error, lines, table)
    return f"{path}: {error}" if line is None else f"{path}:{line}: {error}"


def _line(error: str, lines: Mapping[tuple[str, str], int], table: str) -> int | None:
    if found := _TOML.search(error):
        return int(found[1])
    if found := _NAMED.match(error):
        title, name = found.groups()
        return lines.get((title, name), lines.get((title, "")))
    if error.startswith(f"unknown {TABLE_IN_FILE}"):
        return lines.get((table, ""))
    named = (lines.get((table, each)) for each in _NAME.findall(error))
    return next((line for line in named if line is not None), None)


def without_tables(file_text: str, names: Collection[str]) -> str:
    """Return a file without some tables; all others stay at their lines."""
    kept: list[str] = []
    is_left_out = False
    for text in file_text.splitlines():
        if found := _TABLE.match(text):
            is_left_out = found[2] in names
        kept.append("" if is_left_out else text)
    return "\n".join(kept)


def _lines_of(file_text: str) -> Mapping[tuple[str, str], int]:
    """Return the line of each option by the title of its table and its name, and that of each table
    by its title and an empty name.
    """
    lines: dict[tuple[str, str], int] = {}
    seen = Counter[str]()
    title = ""
    for number, text in enumerate(file_text.splitlines(), 1):
        if found := _TABLE.match(text):
            brackets, name = found.groups()
            seen[name] += 1
            title = f"[{name}]" if len(brackets) == 1 else f"[[{name}]] {seen[name]}"
            lines[title, ""] = number
        elif found := _ASSIGNMENT.match(text):
            lines[title, found[1]] = number
    return lines
