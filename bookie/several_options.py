"""Options of several bookies on one machine, from one configuration file.

Leaves the options of one bookie to `bookie.options`, and running the bookies to
`quire.local.bookie_group`.

Format: one `[[bookie]]` table per bookie, with at least its `data_dir`; an optional table
`[bookie_defaults]` holds shared options. `QUIRE_BOOKIE_<OPTION>`, `QUIRE_METADATA` and flags
override both and apply to all bookies; they cannot set the options in OWN_OPTIONS.

Invariants: no two bookies share a directory or a port; an error names every wrong table.
"""

import os.path
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bookie.options import (
    OPTION_TABLE,
    OPTIONS,
    TABLE,
    VARIABLE_PREFIX,
    BookieOptions,
    checked_options,
)
from quire.server.errors import OptionError
from quire.server.option_reading import Value, merge_options, parse_file, table_of

DEFAULTS_TABLE: Final = "bookie_defaults"
OWN_OPTIONS: Final = ("data_dir", "port", "admin_port")
"""Options that must differ between bookies."""
ANY_ADDRESS: Final = ("0.0.0.0", "::")


def has_several(file_text: str | None) -> bool:
    """Return whether a file configures bookies by `[[bookie]]` tables. Raises OptionError."""
    return isinstance(parse_file(file_text).get(TABLE), list)


def load_several(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> tuple[BookieOptions, ...]:
    """Return the options of each bookie in a file. Raises OptionError with one line for each
    error.
    """
    document = parse_file(file_text)
    tables = document.get(TABLE)
    if not isinstance(tables, list):
        raise OptionError(
            f"the configuration file has no [[{TABLE}]] tables: write one for each bookie"
        )
    defaults = table_of(document, DEFAULTS_TABLE)
    errors = list(_shared_errors(defaults, variables, flags))
    loaded: list[BookieOptions] = []
    for number, own in enumerate(tables, 1):
        title = f"[[{TABLE}]] {number}"
        if not isinstance(own, dict):
            errors.append(f"{title} is not a table: write [[{TABLE}]]")
            continue
        given = {f"[{DEFAULTS_TABLE}]": defaults, title: own}
        try:
            loaded.append(checked_options(merge_options(OPTION_TABLE, given, variables, flags)))
        except OptionError as error:
            text = str(error)
            is_located = title in text or DEFAULTS_TABLE in text
            errors.append(text if is_located else f"{title}: {text}")
    if len(loaded) == len(tables):
        errors += _clashes(loaded)
    if errors:
        raise OptionError("\n".join(dict.fromkeys(errors)))
    return tuple(loaded)


def flags_of(options: BookieOptions) -> list[str]:
    """Return the flags of `quire bookie run` that set exactly these options."""
    flags: list[str] = []
    for name, info in OPTIONS.items():
        value, flag = getattr(options, name), f"--{name.replace('_', '-')}"
        if value == info.default:
            continue
        flags.append(flag if value is True else f"{flag}={value}")
    return flags


def _shared_errors(
    defaults: Mapping[str, object], variables: Mapping[str, str], flags: Mapping[str, Value]
) -> Iterable[str]:
    for name in OWN_OPTIONS:
        places = (
            (f"[{DEFAULTS_TABLE}] {name}", name in defaults),
            (VARIABLE_PREFIX + name.upper(), VARIABLE_PREFIX + name.upper() in variables),
            (f"--{name.replace('_', '-')}", name in flags),
        )
        for place, is_given in places:
            if is_given:
                yield f"{place} would apply to every bookie: set {name} in each [[{TABLE}]]"


def _clashes(loaded: Sequence[BookieOptions]) -> Iterable[str]:
    """Return an error for each table that shares a directory or a port with another."""
    directories: dict[str, int] = {}
    ports: dict[int, list[tuple[str, str]]] = {}
    for number, each in enumerate(loaded, 1):
        directory = os.path.realpath(each.data_dir)
        first = directories.setdefault(directory, number)
        if first != number:
            yield f"[[{TABLE}]] {number} data_dir is that of [[{TABLE}]] {first}: {each.data_dir}"
        for option, host, port in (
            ("port", each.host, each.port),
            ("admin_port", each.admin_host, each.admin_port),
        ):
            title = f"[[{TABLE}]] {number} {option}"
            for other, other_host in ports.get(port, ()):
                if host == other_host or host in ANY_ADDRESS or other_host in ANY_ADDRESS:
                    yield f"{title} is that of {other}: {port}"
                    break
            if port:
                ports.setdefault(port, []).append((title, host))
