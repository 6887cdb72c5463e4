"""`quire config show|check`: what a server would be configured with, and whether a file is right.

Leaves the options, their bounds and their order of precedence to `bookie.options`.
"""

import argparse
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from quire.cli.command_line import Noun
from quire.cli.output import Output
from quire.errors import ExitCode, UsageError

GIVEN_LATER = "(given when it is started)"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire config`."""
    noun = Noun("config", "The configuration of servers: a TOML file, QUIRE_* variables, flags.")
    show = noun.verb(
        "show", _show, "print every option: value, origin, meaning", needs_cluster=False
    )
    show.add_argument("--config", metavar="FILE", help="a TOML file with a [bookie] table")
    check = noun.verb("check", _check, "tell whether a file is right", needs_cluster=False)
    check.add_argument("file", metavar="FILE")
    return noun.parser


def read_config_file(path: str | None) -> str | None:
    """Return a configuration file's text. Raises UsageError."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration file {path} cannot be read: {error}") from error


def _show(arguments: argparse.Namespace, output: Output) -> int:
    from bookie.options import OPTIONS

    text = read_config_file(arguments.config)
    values = _load(text, os.environ)
    with output.listing("option", "value", "origin", "help") as listing:
        for name, info in OPTIONS.items():
            row = {"server": "bookie", "option": name, "value": values[name], "help": info.help}
            origin = _origin(name, text, arguments.config)
            listing.add({**row, "origin": origin, "least": info.low, "most": info.high})
    return ExitCode.DONE


def _check(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.file)
    _load(text, os.environ)
    output.record({"file": arguments.file, "is_valid": True})
    return ExitCode.DONE


def _load(text: str | None, variables: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    from bookie.errors import OptionError
    from bookie.options import OPTIONS, load_options

    flags = {} if _origin("data_dir", text, "") != "default" else {"data_dir": GIVEN_LATER}
    try:
        options = load_options(text, variables, flags)
    except OptionError as error:
        raise UsageError(str(error), try_next="quire config show") from error
    return {name: getattr(options, name) for name in OPTIONS}


def _origin(name: str, text: str | None, path: str | None) -> str:
    from bookie.options import METADATA_VARIABLE, TABLE, VARIABLE_PREFIX

    variable = METADATA_VARIABLE if name == "metadata" else VARIABLE_PREFIX + name.upper()
    own = VARIABLE_PREFIX + name.upper()
    for each in (own, variable):
        if each in os.environ:
            return each
    try:
        table = tomllib.loads(text or "").get(TABLE, {})
    except tomllib.TOMLDecodeError:
        return "default"  # `load_options` says what is wrong with it
    return str(path) if isinstance(table, dict) and name in table else "default"
