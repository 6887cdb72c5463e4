"""`quire config show|check`: the resulting configuration of a server, and the check of a file.

Leaves the options and their bounds to the `options` module of each kind of server, and
their order of precedence to `quire.server.option_reading`.
"""

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from quire.cli.command_line import METADATA_VARIABLE, Noun
from quire.cli.config_lines import located, without_tables
from quire.cli.output import Output
from quire.cli.server_options import load_given, read_config_file
from quire.errors import ExitCode, UsageError
from quire.server.errors import OptionError
from quire.server.option_reading import TABLE_IN_FILE, TABLES, OptionInfo, Value, known_name

GIVEN_LATER = "(given when it is started)"
TRY_NEXT = "quire config show"


@dataclass(frozen=True, slots=True)
class _Server:
    """One server: name, prefix of its variables, options, title and values of its table in the
    file, and the reader of all.
    """

    name: str
    variable_prefix: str
    options: Mapping[str, OptionInfo]
    title: str
    given: Mapping[str, object]
    load: Callable[[], object]


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
    loaded = [(server, _values(server)) for server in _servers(text)]
    with output.listing("server", "option", "value", "origin", "help") as listing:
        for server, values in loaded:
            for name, info in server.options.items():
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
    for server in _servers(text):
        try:
            _values(server)
        except UsageError as error:
            for each in str(error).splitlines():
                errors[located(each, arguments.file, text, server.title)] = None
    if errors:
        raise UsageError("\n       ".join(errors), try_next=TRY_NEXT)
    output.record({"file": arguments.file, "is_valid": True})
    return ExitCode.DONE


def _servers(text: str | None) -> tuple[_Server, ...]:
    """Return the servers of a file: one bookie, or as many as it has tables, and one of each other
    kind.
    """
    from bookie import options as bookie
    from broker_layer import options as broker
    from quire.console import options as console
    from quire.gateway import options as gateway
    from quire.zookeeper import options as zookeeper

    tables = _tables(text).get(bookie.TABLE, {})
    several = tables if isinstance(tables, list) else []
    names = [f"{bookie.TABLE} {number}" for number, _ in enumerate(several, 1)] or [bookie.TABLE]
    bookies = [
        _Server(
            name,
            bookie.VARIABLE_PREFIX,
            bookie.OPTIONS,
            f"[[{bookie.TABLE}]] {number + 1}" if several else f"[{bookie.TABLE}]",
            _given_to_bookie(text, number),
            partial(_load_bookie, text, number),
        )
        for number, name in enumerate(names)
    ]
    others = (
        (broker.TABLE, broker.VARIABLE_PREFIX, broker.OPTIONS, _load_broker),
        (gateway.TABLE, gateway.VARIABLE_PREFIX, gateway.OPTIONS, _load_gateway),
        (console.TABLE, console.VARIABLE_PREFIX, console.OPTIONS, _load_console),
        (zookeeper.TABLE, zookeeper.VARIABLE_PREFIX, zookeeper.OPTIONS, _load_zookeeper),
    )
    return (
        *bookies,
        *(
            _Server(name, prefix, options, f"[{name}]", _table(text, name), partial(load, text))
            for name, prefix, options, load in others
        ),
    )


def _table(text: str | None, name: str) -> Mapping[str, object]:
    table = _tables(text).get(name, {})
    return table if isinstance(table, dict) else {}


def _load_bookie(text: str | None, number: int) -> object:
    from bookie.options import load_options
    from bookie.several_options import load_several

    if isinstance(_tables(text).get("bookie"), list):
        return load_given(load_several, text, {}, try_next=TRY_NEXT)[number]
    is_given = "QUIRE_BOOKIE_DATA_DIR" in os.environ or "data_dir" in _given_to_bookie(text, 0)
    flags = {} if is_given else {"data_dir": GIVEN_LATER}
    return load_given(load_options, text, flags, try_next=TRY_NEXT)


def _given_to_bookie(text: str | None, number: int) -> Mapping[str, object]:
    """Return the file's values for one bookie."""
    from bookie.options import TABLE
    from bookie.several_options import DEFAULTS_TABLE

    table, defaults = _tables(text).get(TABLE, {}), _tables(text).get(DEFAULTS_TABLE, {})
    if isinstance(table, list):
        own = table[number]
        return {**(defaults if isinstance(defaults, dict) else {}), **own}
    return table if isinstance(table, dict) else {}


def _load_broker(text: str | None) -> object:
    from broker_layer.options import load_options

    return load_given(load_options, text, {}, try_next=TRY_NEXT)


def _load_gateway(text: str | None) -> object:
    from quire.gateway.options import load_options

    return load_given(load_options, text, {}, try_next=TRY_NEXT)


def _load_console(text: str | None) -> object:
    from quire.console.options import load_options

    return load_given(load_options, text, {}, try_next=TRY_NEXT)


def _load_zookeeper(text: str | None) -> object:
    from quire.zookeeper.options import load_options

    is_given = "QUIRE_ZOOKEEPER_DATA_DIR" in os.environ or "data_dir" in _table(text, "zookeeper")
    flags = {} if is_given else {"data_dir": GIVEN_LATER}
    return load_given(load_options, text, flags, try_next=TRY_NEXT)


def _values(server: _Server) -> Mapping[str, Value]:
    options = server.load()
    return {name: getattr(options, name) for name in server.options}


def _origin(server: _Server, name: str, path: str | None) -> str:
    own = server.variable_prefix + name.upper()
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
