"""Output of commands: tables for people, one JSON document for programs.

Results go to the standard output, everything else to the standard error, so that pipes carry only
results.

Invariants: with `-o json` the standard output holds one JSON document, or one per line for commands
that document it; only output to a terminal is coloured; text of a client reaches a terminal with
its control characters escaped. A command that changes the cluster and records it goes on when its
output ends, so that the record says what became of the change.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from quire.operate.fields import Json, Row, describe_field, heading, printable, printable_bytes

ROWS_MEASURED_MAX: Final = 500
"""Number of rows of a table that are held back to find its column widths; later rows are printed at
once."""
VALUE_CHARACTERS_MAX: Final = 120
"""A value with names, such as a bookie's statistics, that is longer has a line for each name."""
LAYOUT: Final = "\n\t"
"""Control characters that texts of Quire have."""


class Output:
    """Streams of one command, and the format of its results."""

    def __init__(self, *, as_json: bool, results: TextIO, remarks: TextIO) -> None:
        self.as_json = as_json
        self.results = results
        self.remarks = remarks
        self.shows_to_person = not as_json and results.isatty()
        self.remarks_to_person = remarks.isatty()
        self.may_end_early = True
        """Whether the command ends with its output."""
        self.lost: OSError | None = None
        """Why the output ended, if the command goes on."""

    def record(self, row: Row) -> None:
        """Print one row: its fields one per line, or a JSON object."""
        if self.as_json:
            self.line(json.dumps(row))
            return
        width = max((len(heading(name)) for name in row), default=0)
        for name, value in row.items():
            text = describe_field(name, value)
            if isinstance(value, Mapping) and len(text) > VALUE_CHARACTERS_MAX:
                self.line(heading(name))
                for key in value:
                    self.line(f"  {printable(heading(key))}  {describe_field(key, value[key])}")
            else:
                self.line(f"{heading(name):<{width}}  {text}")

    def document(self, row: Row, tables: Mapping[str, Sequence[str]]) -> None:
        """Print one row of which some fields are lists of rows: a JSON object, or the other fields
        and then a table of each list that is not empty. `tables` has the columns of each list.
        """
        if self.as_json:
            self.record(row)
            return
        self.record({name: value for name, value in row.items() if name not in tables})
        for name, columns in tables.items():
            value = row.get(name)
            rows = (
                [item for item in value if isinstance(item, Mapping)]
                if isinstance(value, list)
                else []
            )
            if rows:
                self.line("")
                self.table(rows, *columns)

    def table(self, rows: Iterable[Row], *columns: str) -> None:
        """Print rows: a table of the given fields, or a JSON array of complete rows."""
        with self.listing(*columns) as listing:
            for row in rows:
                listing.add(row)

    @contextmanager
    def listing(self, *columns: str) -> Iterator["Listing"]:
        """Print rows as `table` does, added one by one."""
        listing = JsonListing(self) if self.as_json else TableListing(self, columns)
        yield listing
        listing.end()

    @contextmanager
    def lines(self, *columns: str) -> Iterator["Listing"]:
        """Print many rows as they come: a table of the given fields, or a JSON object per line."""
        listing = JsonLines(self) if self.as_json else TableListing(self, columns)
        yield listing
        listing.end()

    def line(self, text: str) -> None:
        """Print one line of the result."""
        self.write(printable(text, LAYOUT) + "\n")

    def write(self, text: str) -> None:
        """Print a part of the result as it is."""
        with self._going_on():
            self.results.write(text)

    def data_line(self, data: bytes) -> bytes:
        """Return data of a client as a line; a terminal gets its control characters escaped."""
        return (printable_bytes(data).encode() if self.shows_to_person else data) + b"\n"

    def remark(self, text: str) -> None:
        """Print a remark for people, which is not part of the result."""
        with self._going_on():
            self.remarks.write(printable(text, LAYOUT) + "\n")
            self.remarks.flush()

    def failure(self, error: BaseException, code: int) -> None:
        """Print an error: text, or a JSON object with the error's fields."""
        try_next = getattr(error, "try_next", "")
        if self.as_json:
            fields: dict[str, Json] = {"error": type(error).__name__, "message": str(error)}
            for name in ("ledger_id", "entry_id", "retriable", "outcome"):
                if hasattr(error, name):
                    # The class says whether the command can be repeated: it has another writer.
                    of = type(error) if name == "retriable" else error
                    fields[name] = getattr(of, name)
            self.remark(json.dumps(fields | {"try_next": try_next, "exit_code": code}))
            return
        self.remark(f"quire: {str(error) or type(error).__name__}")
        if try_next:
            self.remark(f"       try: {try_next}")

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.may_end_early:
                raise
            self.lost = error


class JsonListing:
    """Listing that prints rows as the elements of one JSON array, one per line, as they come."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.count = 0

    def add(self, row: Row) -> None:
        """Print one more row."""
        self._output.write(("[\n" if self.count == 0 else ",\n") + json.dumps(row))
        self.count += 1

    def end(self) -> None:
        """Close the array."""
        self._output.line("[]" if self.count == 0 else "\n]")


class JsonLines:
    """Listing that prints each row as one line of JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.count = 0

    def add(self, row: Row) -> None:
        """Print one more row."""
        self._output.line(json.dumps(row))
        self.count += 1

    def end(self) -> None:
        """Do nothing: every line is complete."""


class TableListing:
    """Listing that prints rows as a table; the first rows set the column widths."""

    def __init__(self, output: Output, columns: Sequence[str]) -> None:
        self._output = output
        self._columns = columns
        self._held: list[list[str]] = []
        self._widths: list[int] = []
        self.count = 0

    def add(self, row: Row) -> None:
        """Print one more row, or hold it back until the column widths are known."""
        self.count += 1
        cells = [describe_field(column, row.get(column)) for column in self._columns]
        if self._widths:
            self._print(cells)
            return
        self._held.append(cells)
        if len(self._held) >= ROWS_MEASURED_MAX:
            self._print_held()

    def end(self) -> None:
        """Print the rows that are still held back."""
        if self._widths:
            return
        if not (self._output.shows_to_person and self._print_with_rich()):
            self._print_held()

    def _print_held(self) -> None:
        headings = [heading(column).upper() for column in self._columns]
        self._widths = [max(map(len, column)) for column in zip(headings, *self._held, strict=True)]
        self._print(headings)
        for cells in self._held:
            self._print(cells)

    def _print(self, cells: Sequence[str]) -> None:
        pairs = zip(cells, self._widths, strict=True)
        self._output.line("  ".join(f"{cell:<{width}}" for cell, width in pairs).rstrip())

    def _print_with_rich(self) -> bool:
        try:
            from rich.box import SIMPLE_HEAD
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ModuleNotFoundError:
            return False
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for column in self._columns:
            table.add_column(heading(column).upper(), overflow="fold")
        for cells in self._held:
            table.add_row(*(Text(cell) for cell in cells))
        Console(file=self._output.results).print(table)
        return True


Listing = JsonListing | JsonLines | TableListing
