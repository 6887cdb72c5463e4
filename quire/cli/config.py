"""`quire config show|check`: the resulting configuration of servers, and the check of a file.

Invariant: a check reports all that is wrong with a file at once: with its options, with options
that contradict each other, also those of two servers, and with the files that it names.
"""

import argparse
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from quire.addresses import is_wildcard
from quire.cli.command_line import Noun
from quire.cli.output import Output
from quire.cli.servers import MODULES, read_config_file, server_table
from quire.errors import ExitCode, UsageError
from quire.operate.fields import Json
from quire.options import (
    TABLE_IN_FILE,
    TABLES,
    OptionError,
    OptionTable,
    Reading,
    Value,
    known_name,
    parse_toml,
)
from quire.server.server_options import ServerOptions, port_clashes

GIVEN_LATER: Final = "(given when it is started)"
TRY_NEXT: Final = "quire config show"

_TABLE: Final = re.compile(r"\s*(\[{1,2})\s*(\w+)\s*\]{1,2}")
_ASSIGNMENT: Final = re.compile(r"\s*\"?(\w+)\"?\s*=")
_NAMED: Final = re.compile(r"(?:unknown option in )?(\[{1,2}\w+\]{1,2}(?: \d+)?):? (\w+)")
_TOML: Final = re.compile(r"\(at line (\d+),")
_NAME: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Server:
    """One server: its name, its table, the title of that in the file, and what was read."""

    name: str
    table: OptionTable[ServerOptions]
    title: str
    is_in_file: bool
    reading: Reading[ServerOptions]

    def shown(self, name: str) -> Value:
        """Return the value of an option."""
        value: Value = getattr(self.reading.options, name)
        return GIVEN_LATER if name in self.reading.missing else value

    def origin(self, name: str, path: str | None) -> str:
        """Return where the value of an option comes from."""
        origin = self.reading.origins.get(name, "default")
        return str(path) if origin.startswith("[") else origin


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire config`."""
    noun = Noun("config", "The configuration of servers: flags, a TOML file, QUIRE_* variables.")
    show = noun.verb(
        "show", _show, "print every option: value, origin, meaning", needs_cluster=False
    )
    show.add_argument(
        "--config", metavar="FILE", help="a TOML file with tables of servers, such as [bookie]"
    )
    check = noun.verb(
        "check",
        _check,
        "check a configuration file, and the files that it names, as the user that runs the server",
        needs_cluster=False,
    )
    check.add_argument("file", metavar="FILE")
    check.add_argument(
        "--without-files",
        action="store_true",
        help="do not read the files that it names: for a file of another machine",
    )
    return noun.parser


def _show(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.config) or ""
    servers, problems = _read(text)
    problems += [problem for server in servers for problem in server.reading.problems]
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)), try_next=TRY_NEXT)
    with output.listing("server", "option", "value", "origin", "help") as listing:
        for server in servers:
            for name, option in server.table.options.items():
                row: dict[str, Json] = {
                    "server": server.name,
                    "option": name,
                    "value": server.shown(name),
                }
                origin = server.origin(name, arguments.config)
                facts = option.facts
                limits = {"unit": option.unit, "least": facts.low, "most": facts.high}
                listing.add({**row, "help": facts.help, "origin": origin, **limits})
    return ExitCode.DONE


def _check(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.file) or ""
    servers, problems = _read(text)
    errors = [located(problem, arguments.file, text) for problem in problems]
    for server in servers:
        wrong = list(server.reading.problems)
        if server.is_in_file and not arguments.without_files:
            options = server.reading.options
            # Options that contradict each other do not say which certificates are used.
            wrong += ServerOptions.unusable_files(options) if wrong else options.unusable_files()
        errors += (located(problem, arguments.file, text, server.title) for problem in wrong)
    listeners = [
        (server.title, address)
        for server in servers
        if server.is_in_file
        for address in server.reading.options.addresses()
        if address.option not in server.reading.wrong
    ]
    certain = list(port_clashes(pair for pair in listeners if not is_wildcard(pair[1].host)))
    errors += (located(clash, arguments.file, text) for clash in certain)
    if errors:
        raise UsageError("\n       ".join(dict.fromkeys(errors)), try_next=TRY_NEXT)
    for clash in port_clashes(listeners):
        where = located(clash, arguments.file, text)
        output.remark(f"{where}; this is right only if they run on different machines")
    output.record({"file": arguments.file, "is_valid": True})
    return ExitCode.DONE


def _read(text: str) -> tuple[list[_Server], list[str]]:
    """Return the servers of a file, one bookie or as many as it has tables and one of each other
    kind; and what is wrong with the file but with no single server.
    """
    problems: list[str] = []
    servers: list[_Server] = []
    document: Mapping[str, object] = {}
    try:
        document = parse_toml(text)
    except OptionError as error:
        problems.append(str(error))
    for name in document:
        try:
            known_name(name, TABLES, TABLE_IN_FILE)
        except OptionError as error:
            problems.append(str(error))
    for name in MODULES:
        table = server_table(name)
        if isinstance(document.get(name), list):
            several, wrong = _several(table, document)
            servers += several
            problems += wrong
            continue
        try:
            given = table.in_file(document)
        except OptionError as error:
            problems.append(str(error))
            continue
        reading = table.read(given, os.environ, {})
        servers.append(_Server(name, table, f"[{name}]", name in document, reading))
    return servers, problems


def _several(
    table: OptionTable[Any], document: Mapping[str, object]
) -> tuple[list[_Server], list[str]]:
    from bookie.options import read_several

    readings, problems = read_several(document, os.environ, {})
    servers = [
        _Server(f"{table.name} {number}", table, title, is_in_file=True, reading=reading)
        for number, (title, reading) in enumerate(readings, 1)
    ]
    return servers, problems


def located(error: str, path: str, file_text: str, table: str = "") -> str:
    """Return an error as `path:line: error`, or `path: error` if no line sets an option that it
    names. `table` is the title of the table that the error is about, such as `[bookie]`.
    """
    line = _line(error, _lines_of(file_text), table)
    return f"{path}: {error}" if line is None else f"{path}:{line}: {error}"


def _line(error: str, lines: Mapping[tuple[str, str], int], table: str) -> int | None:
    if match := _TOML.search(error):
        return int(match[1])
    if match := _NAMED.match(error):
        title, name = match.groups()
        return lines.get((title, name), lines.get((title, "")))
    if error.startswith(f"unknown {TABLE_IN_FILE}: "):
        name = error.removeprefix(f"unknown {TABLE_IN_FILE}: ").partition(";")[0]
        return lines.get((f"[{name}]", ""), lines.get((f"[[{name}]] 1", "")))
    named = (lines.get((table, word)) for word in _NAME.findall(error))
    return next((line for line in named if line is not None), None)


def _lines_of(file_text: str) -> Mapping[tuple[str, str], int]:
    """Return the line of each option by the title of its table and its name, and that of each table
    by its title and an empty name.
    """
    lines: dict[tuple[str, str], int] = {}
    seen = Counter[str]()
    title = ""
    for number, text in enumerate(file_text.splitlines(), 1):
        if match := _TABLE.match(text):
            brackets, name = match.groups()
            seen[name] += 1
            title = f"[{name}]" if len(brackets) == 1 else f"[[{name}]] {seen[name]}"
            lines[title, ""] = number
        elif match := _ASSIGNMENT.match(text):
            lines[title, match[1]] = number
    return lines
