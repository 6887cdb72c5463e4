"""`quire config show|check`: the resulting configuration of a server, and the check of a file.

Leaves the options and their bounds to the `options` module of each kind of server, and their order
of precedence to `quire.server.option_reading`. `located` looks for the line of a file that an error
is about: one that begins as the error names it.

Invariant: an error without a known line is reported without one.
"""

import argparse
import os
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quire.cli.command_line import METADATA_VARIABLE, Noun
from quire.cli.output import Output
from quire.cli.servers import BOOKIE, SERVERS, ZOOKEEPER, Server, load_given, read_config_file
from quire.errors import ExitCode, UsageError
from quire.server.errors import OptionError
from quire.server.option_reading import TABLE_IN_FILE, TABLES, Value, known_name

GIVEN_LATER: Final = "(given when it is started)"
TRY_NEXT: Final = "quire config show"

_TABLE: Final = re.compile(r"\s*(\[{1,2})\s*(\w+)\s*\]{1,2}")
_ASSIGNMENT: Final = re.compile(r"\s*\"?(\w+)\"?\s*=")
_NAMED: Final = re.compile(r"(?:unknown option in )?(\[{1,2}\w+\]{1,2}(?: \d+)?):? (\w+)")
_TOML: Final = re.compile(r"\(at line (\d+),")
_NAME: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Configured:
    """One server, as a file and the environment configure it."""

    kind: Server
    name: str
    title: str
    """Title of its table in the file."""
    given: Mapping[str, object]
    """The file's values for it."""
    number: int | None = None
    """Which bookie of a file with several."""

    @property
    def module(self) -> Any:
        """Module of its options."""
        return self.kind.options

    def values(self, text: str | None) -> Mapping[str, Value]:
        """Return the values of all options. Raises UsageError."""
        if self.number is not None:
            from bookie.several_options import load_several

            options = load_given(load_several, text, {}, try_next=TRY_NEXT)[self.number]
        else:
            options = load_given(self.module.load_options, text, self._flags(), try_next=TRY_NEXT)
        return {name: getattr(options, name) for name in self.module.OPTIONS}

    def _flags(self) -> dict[str, Value]:
        """Return values of options that have no default, and are not given here."""
        variable = f"{self.module.VARIABLE_PREFIX}DATA_DIR"
        if self.kind not in (BOOKIE, ZOOKEEPER) or variable in os.environ:
            return {}
        return {} if "data_dir" in self.given else {"data_dir": GIVEN_LATER}


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire config`."""
    noun = Noun("config", "The configuration of servers: a TOML file, QUIRE_* variables, flags.")
    show = noun.verb(
        "show", _show, "print every option: value, origin, meaning", needs_cluster=False
    )
    show.add_argument(
        "--config", metavar="FILE", help="a TOML file with tables of servers, such as [bookie]"
    )
    check = noun.verb("check", _check, "check a configuration file", needs_cluster=False)
    check.add_argument("file", metavar="FILE")
    return noun.parser


def _show(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.config)
    loaded = [(server, server.values(text)) for server in _configured(text)]
    with output.listing("server", "option", "value", "origin", "help") as listing:
        for server, values in loaded:
            for name, info in server.module.OPTIONS.items():
                row = {"server": server.name, "option": name, "value": values[name]}
                origin = _origin(server, name, arguments.config)
                limits = {"least": info.low, "most": info.high}
                listing.add({**row, "help": info.help, "origin": origin, **limits})
    return ExitCode.DONE


def _check(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.file) or ""
    errors: dict[str, None] = {}
    unknown = [name for name in _tables(text) if name not in TABLES]
    for name in unknown:
        try:
            known_name(name, TABLES, TABLE_IN_FILE)
        except OptionError as error:
            errors[located(str(error), arguments.file, text, f"[{name}]")] = None
    text = without_tables(text, unknown) if unknown else text
    for server in _configured(text):
        try:
            server.values(text)
        except UsageError as error:
            for each in str(error).splitlines():
                errors[located(each, arguments.file, text, server.title)] = None
    if errors:
        raise UsageError("\n       ".join(errors), try_next=TRY_NEXT)
    output.record({"file": arguments.file, "is_valid": True})
    return ExitCode.DONE


def _configured(text: str | None) -> list[_Configured]:
    """Return the servers of a file: one bookie, or as many as it has tables, and one of each other
    kind.
    """
    found = []
    for kind in SERVERS:
        name = kind.options.TABLE
        table = _tables(text).get(name, {})
        if isinstance(table, list):
            defaults = _bookie_defaults(text)
            found += [
                _Configured(
                    kind,
                    f"{name} {number}",
                    f"[[{name}]] {number}",
                    {**defaults, **own},
                    number - 1,
                )
                for number, own in enumerate(table, 1)
            ]
        else:
            given = table if isinstance(table, dict) else {}
            found.append(_Configured(kind, name, f"[{name}]", given))
    return found


def _bookie_defaults(text: str | None) -> Mapping[str, object]:
    from bookie.several_options import DEFAULTS_TABLE

    defaults = _tables(text).get(DEFAULTS_TABLE, {})
    return defaults if isinstance(defaults, dict) else {}


def _origin(server: _Configured, name: str, path: str | None) -> str:
    own = server.module.VARIABLE_PREFIX + name.upper()
    shared = METADATA_VARIABLE if name == "metadata" else own
    for each in (own, shared):
        if each in os.environ:
            return each
    return str(path) if name in server.given else "default"


def _tables(text: str | None) -> Mapping[str, object]:
    try:
        return tomllib.loads(text or "")
    except tomllib.TOMLDecodeError:
        return {}  # `load_options` reports the error in the file


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
