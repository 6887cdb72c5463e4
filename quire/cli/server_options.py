"""Options of a server's verb: one flag for each, read together with variables and the file.

Leaves the list of options to the `options` module of each kind of server, which needs the extra of
that server, and is imported only for verbs that run one.
"""

import argparse
import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from quire.cli.command_line import VerbParser
from quire.errors import UsageError
from quire.server.errors import OptionError
from quire.server.option_reading import OptionInfo, Value

OptionsT = TypeVar("OptionsT")
Switch = Literal["store_true"] | type[argparse.BooleanOptionalAction]
"""Form of the flag of a boolean option: only --name, or also --no-name."""


def add_option_flags_later(verb: VerbParser, module: str, switch: Switch) -> None:
    """Add `--config` and the flags of a module's OPTIONS when the verb is parsed or described."""

    def add(parser: argparse.ArgumentParser) -> None:
        server = importlib.import_module(module)
        add_option_flags(parser, server.TABLE, server.OPTIONS, switch)

    verb.add_later(add)


def add_option_flags(
    verb: argparse.ArgumentParser, table: str, options: Mapping[str, OptionInfo], switch: Switch
) -> None:
    """Add `--config` and one flag for each option."""
    verb.add_argument("--config", metavar="FILE", help=f"a TOML file with a [{table}] table")
    title = f"options, each also in the file and as QUIRE_{table.upper()}_<OPTION>"
    group = verb.add_argument_group(title)
    for name, option in options.items():
        flag = f"--{name.replace('_', '-')}"
        text = f"{option.help} (default: {option.default or 'none'})".replace("%", "%%")
        kind = option.kind
        if kind is bool:
            group.add_argument(flag, dest=name, action=switch, default=None, help=text)
        else:
            group.add_argument(flag, dest=name, type=kind, metavar=kind.__name__, help=text)


def load_given(
    load: Callable[[str | None, Mapping[str, str], Mapping[str, Value]], OptionsT],
    file_text: str | None,
    flags: Mapping[str, Value | None],
    *,
    try_next: str,
) -> OptionsT:
    """Return the configuration of a server; None means an absent flag. Raises UsageError."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return load(file_text, os.environ, given)
    except OptionError as error:
        raise UsageError(str(error), try_next=try_next) from error


def read_config_file(path: str | None) -> str | None:
    """Return a configuration file's text. Raises UsageError."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the configuration file {path} cannot be read: {error}",
            try_next="name a UTF-8 text file that this user can read",
        ) from error
