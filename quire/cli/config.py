"""`quire config show|check`: what a server would be configured with, and whether a file is right.

Leaves the options and their bounds to `bookie.options` and `broker_layer.options`, and their order
of precedence to `serving.option_reading`.
"""

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quire.cli.command_line import METADATA_VARIABLE, Noun
from quire.cli.output import Output
from quire.cli.server_options import load_given, read_config_file
from quire.errors import ExitCode
from serving.option_reading import OptionInfo, Value

GIVEN_LATER = "(given when it is started)"
TRY_NEXT = "quire config show"


@dataclass(frozen=True, slots=True)
class _Server:
    """One kind of server: its table of the file, its variables, its options, and who reads them."""

    table: str
    variable_prefix: str
    options: Mapping[str, OptionInfo]
    load: Callable[[str | None], object]


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire config`."""
    noun = Noun("config", "The configuration of servers: a TOML file, QUIRE_* variables, flags.")
    show = noun.verb(
        "show", _show, "print every option: value, origin, meaning", needs_cluster=False
    )
    show.add_argument(
        "--config", metavar="FILE", help="a TOML file with tables [bookie] and [broker]"
    )
    check = noun.verb("check", _check, "tell whether a file is right", needs_cluster=False)
    check.add_argument("file", metavar="FILE")
    return noun.parser


def _show(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.config)
    loaded = [(server, _values(server, text)) for server in _servers()]
    with output.listing("server", "option", "value", "origin", "help") as listing:
        for server, values in loaded:
            for name, info in server.options.items():
                row = {"server": server.table, "option": name, "value": values[name]}
                origin = _origin(server, name, text, arguments.config)
                limits = {"least": info.low, "most": info.high}
                listing.add({**row, "help": info.help, "origin": origin, **limits})
    return ExitCode.DONE


def _check(arguments: argparse.Namespace, output: Output) -> int:
    text = read_config_file(arguments.file)
    for server in _servers():
        _values(server, text)
    output.record({"file": arguments.file, "is_valid": True})
    return ExitCode.DONE


def _servers() -> tuple[_Server, _Server]:
    from bookie import options as bookie
    from broker_layer import options as broker

    return (
        _Server(bookie.TABLE, bookie.VARIABLE_PREFIX, bookie.OPTIONS, _load_bookie),
        _Server(broker.TABLE, broker.VARIABLE_PREFIX, broker.OPTIONS, _load_broker),
    )


def _load_bookie(text: str | None) -> object:
    from bookie.options import load_options

    flags = {} if _is_given(text, "data_dir") else {"data_dir": GIVEN_LATER}
    return load_given(load_options, text, flags, try_next=TRY_NEXT)


def _load_broker(text: str | None) -> object:
    from broker_layer.options import load_options

    return load_given(load_options, text, {}, try_next=TRY_NEXT)


def _values(server: _Server, text: str | None) -> Mapping[str, Value]:
    options = server.load(text)
    return {name: getattr(options, name) for name in server.options}


def _is_given(text: str | None, name: str) -> bool:
    from bookie.options import TABLE, VARIABLE_PREFIX

    return VARIABLE_PREFIX + name.upper() in os.environ or name in _table(text, TABLE)


def _origin(server: _Server, name: str, text: str | None, path: str | None) -> str:
    own = server.variable_prefix + name.upper()
    shared = METADATA_VARIABLE if name == "metadata" else own
    for each in (own, shared):
        if each in os.environ:
            return each
    return str(path) if name in _table(text, server.table) else "default"


def _table(text: str | None, name: str) -> Mapping[str, object]:
    try:
        table = tomllib.loads(text or "").get(name, {})
    except tomllib.TOMLDecodeError:
        return {}  # `load_options` says what is wrong with it
    return table if isinstance(table, dict) else {}
