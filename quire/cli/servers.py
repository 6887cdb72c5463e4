"""Servers that a command runs in this process: one flag for each option, and the verbs.

`quire broker`, `gateway`, `zookeeper` and `console` are here; bookies have verbs of their own, in
`bookie.verbs`, and repair in `repair.verbs`. Leaves the options to the `options` module of each
kind of server, which needs the extra of that server, and is imported only when its options are
needed.
"""

import argparse
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quire.cli.command_line import Handler, Noun, VerbParser, host_and_port, lone_command
from quire.cli.output import Output
from quire.errors import ExitCode, UsageError
from quire.options import OptionError, OptionsT, OptionTable, Value
from quire.server.server_options import LogLevel
from quire.zookeeper import PORT_DEFAULT

MODULES: Final = {
    "bookie": ("bookie.options", "bookie.main"),
    "broker": ("broker_layer.options", "broker_layer.main"),
    "gateway": ("quire.gateway.options", "quire.gateway.main"),
    "console": ("quire.console.options", "quire.console.main"),
    "zookeeper": ("quire.zookeeper.options", "quire.zookeeper.main"),
    "repair": ("quire.repair.options", "quire.repair.main"),
}
"""For each kind of server, by the name of its table: the module with the table, and the one with
the functions that run it.
"""


def server_table(name: str) -> OptionTable[Any]:
    """Return the options of a kind of server. It may raise ModuleNotFoundError."""
    table: OptionTable[Any] = getattr(importlib.import_module(MODULES[name][0]), name.upper())
    return table


def add_option_flags_later(verb: VerbParser, server: str) -> None:
    """Add `--config` and the flags of a server when the verb is parsed or described."""
    verb.add_later(lambda parser: add_option_flags(parser, server_table(server)))


def add_option_flags(verb: argparse.ArgumentParser, table: OptionTable[Any]) -> None:
    """Add `--config` and one flag for each option."""
    verb.add_argument("--config", metavar="FILE", help=f"a TOML file with a [{table.name}] table")
    title = f"options, each also in the file and as {table.variable_prefix}<OPTION>"
    group = verb.add_argument_group(title)
    for name, spec in table.options.items():
        text = f"{spec.facts.help} (default: {spec.shown_default or 'none'})".replace("%", "%%")
        if spec.kind is bool:
            group.add_argument(
                spec.flag, dest=name, action=argparse.BooleanOptionalAction, default=None, help=text
            )
        elif spec.choices:
            group.add_argument(spec.flag, dest=name, choices=spec.choices, help=text)
        else:
            kind = spec.kind
            group.add_argument(spec.flag, dest=name, type=kind, metavar=kind.__name__, help=text)


def runs(server: str, main: str, joined: Mapping[str, str] | None = None) -> Handler:
    """Return the handler of a verb that runs a server in this process until a stop signal, with the
    function `main`. `joined` are arguments with several texts, each with the option that has them
    separated by spaces.
    """

    def run(arguments: argparse.Namespace, output: Output) -> int:
        table = server_table(server)
        flags = given_flags(arguments, table)
        if arguments.verbose:
            flags.setdefault("log_level", LogLevel.DEBUG)
        for name, option in (joined or {}).items():
            if texts := getattr(arguments, name):
                flags[option] = " ".join((str(flags.get(option, "")), *texts)).lstrip()
        text = read_config_file(arguments.config)
        options = load_given(table, text, flags, try_next=f"quire {arguments.act} --help")
        output.results.flush()
        run_server = getattr(importlib.import_module(MODULES[server][1]), main)
        return int(run_server(options))

    return run


def given_flags(arguments: argparse.Namespace, table: OptionTable[Any]) -> dict[str, Value]:
    """Return the values of the flags that are given."""
    flags = {name: getattr(arguments, name, None) for name in table.options}
    return {name: value for name, value in flags.items() if value is not None}


def load_given(
    table: OptionTable[OptionsT],
    file_text: str | None,
    flags: Mapping[str, Value],
    *,
    try_next: str,
) -> OptionsT:
    """Return the configuration of a server. Raises UsageError."""
    try:
        return table.load(file_text, os.environ, flags)
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


def broker_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire broker`."""
    noun = Noun("broker", "Brokers: the processes that serve topics to Kafka's clients.")
    run = _add_run(
        noun, "broker", "run_broker", "run a broker", {"topic_default": "topic_defaults"}
    )
    run.add_argument(
        "--topic-default",
        metavar="NAME=VALUE",
        action="append",
        help="one of --topic-defaults; may be given several times",
    )
    return noun.parser


def gateway_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire gateway`."""
    text = "Gateways: the processes that do the metadata work of clients that are not trusted."
    noun = Noun("gateway", text)
    _add_run(noun, "gateway", "run_gateway", "run a gateway")
    return noun.parser


def console_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire console`."""
    text = (
        "Show a cluster in a browser: its health, bookies, ledgers, topics and repair. It is a "
        "client of the cluster, and changes nothing without --allow-writes."
    )
    command = lone_command("console", runs("console", "run_console"), text)
    add_option_flags_later(command, "console")
    return command


def zookeeper_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire zookeeper`."""
    text = "ZooKeeper, which keeps the metadata: the one in this package, which needs Java."
    noun = Noun("zookeeper", text)
    summary = "run one server, alone or of an ensemble"
    run = _add_run(noun, "zookeeper", "run_zookeeper", summary, {"server": "servers"})
    run.add_argument(
        "--server",
        metavar="N=HOST:PORT:PORT",
        action="append",
        help="one of --servers; give all of them, this server included",
    )
    status = noun.verb(
        "status", _zookeeper_status, "show whether servers serve", needs_cluster=False
    )
    status.add_argument(
        "addresses",
        metavar="HOST:PORT",
        nargs="*",
        default=[f"127.0.0.1:{PORT_DEFAULT}"],
        help="servers to ask; status 1 if one does not serve",
    )
    return noun.parser


def _add_run(
    noun: Noun, server: str, main: str, summary: str, joined: Mapping[str, str] | None = None
) -> VerbParser:
    run = noun.verb("run", runs(server, main, joined), summary, needs_cluster=False)
    add_option_flags_later(run, server)
    return run


async def _zookeeper_status(arguments: argparse.Namespace, output: Output) -> int:
    from quire.zookeeper.status import ask_servers

    try_next = "quire zookeeper status --help"
    addresses = [host_and_port(address, try_next=try_next) for address in arguments.addresses]
    asked = await ask_servers(addresses)
    columns = ("address", "mode", "version", "node_count", "connections")
    output.table(({name: getattr(status, name) for name in columns} for status in asked), *columns)
    return ExitCode.DONE if all(status.serves for status in asked) else ExitCode.FINDINGS
