"""Servers that a command runs in this process: `quire broker`, `gateway`, `zookeeper`, `console`.

Each has one row in SERVERS. Leaves the list of options to the `options` module of a server, which
needs the extra of that server and is imported only for verbs that run it, and the server itself to
its `main` module. Bookies have verbs of their own, in `bookie.verbs`.
"""

import argparse
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from quire.cli.command_line import Noun, VerbParser, host_and_port, lone_command
from quire.cli.output import Output
from quire.errors import ExitCode, UsageError
from quire.server.errors import OptionError
from quire.server.option_reading import OptionInfo, Value
from quire.zookeeper import PORT_DEFAULT

OptionsT = TypeVar("OptionsT")
Switch = Literal["store_true"] | type[argparse.BooleanOptionalAction]
"""Form of the flag of a boolean option: only --name, or also --no-name."""


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server."""

    options_module: str
    main_module: str
    run: str = ""
    """Function of its main module that runs it, and returns the status of the process."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Repeatable flag -> option that has all of its words, separated by spaces."""

    @property
    def options(self) -> Any:
        """Module with TABLE, VARIABLE_PREFIX, OPTIONS and `load_options`."""
        return importlib.import_module(self.options_module)

    def run_until_stopped(self, arguments: argparse.Namespace, output: Output) -> int:
        """Run a server until it receives a stop signal; print one JSON line once it serves."""
        flags = {name: getattr(arguments, name) for name in self.options.OPTIONS}
        for flag, name in self.words.items():
            given = getattr(arguments, flag)
            if given:
                flags[name] = " ".join((flags[name] or "", *given))
        text, try_next = read_config_file(arguments.config), f"quire {arguments.act} --help"
        options = load_given(self.options.load_options, text, flags, try_next=try_next)
        output.results.flush()
        run = getattr(importlib.import_module(self.main_module), self.run)
        return ExitCode.REFUSED if run(options) else ExitCode.DONE

    def add_flags(self, verb: VerbParser, switch: Switch = argparse.BooleanOptionalAction) -> None:
        """Add `--config` and a flag for each option when the verb is parsed or described."""
        verb.add_later(partial(add_option_flags, self, switch))


BOOKIE: Final = Server("bookie.options", "bookie.main")
BROKER: Final = Server(
    "broker_layer.options", "broker_layer.main", "run_broker", {"topic_default": "topic_defaults"}
)
GATEWAY: Final = Server("quire.gateway.options", "quire.gateway.main", "run_gateway")
CONSOLE: Final = Server("quire.console.options", "quire.console.main", "run_console")
ZOOKEEPER: Final = Server(
    "quire.zookeeper.options", "quire.zookeeper.main", "run_zookeeper", {"server": "servers"}
)
SERVERS: Final = (BOOKIE, BROKER, GATEWAY, CONSOLE, ZOOKEEPER)


def broker_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire broker`."""
    noun = Noun("broker", "Brokers: the processes that serve topics to Kafka's clients.")
    run = _add_run(noun, BROKER, "run a broker")
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
    _add_run(noun, GATEWAY, "run a gateway")
    return noun.parser


def console_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire console`."""
    text = (
        "Show a cluster in a browser: its health, bookies, ledgers, topics and repair. It is a "
        "client of the cluster, and changes nothing without --allow-writes."
    )
    command = lone_command("console", CONSOLE.run_until_stopped, text)
    CONSOLE.add_flags(command)
    return command


def zookeeper_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire zookeeper`."""
    text = "ZooKeeper, which keeps the metadata: the one in this package, which needs Java."
    noun = Noun("zookeeper", text)
    run = _add_run(noun, ZOOKEEPER, "run one server, alone or of an ensemble")
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


def _add_run(noun: Noun, server: Server, summary: str) -> VerbParser:
    run = noun.verb("run", server.run_until_stopped, summary, needs_cluster=False)
    server.add_flags(run)
    return run


async def _zookeeper_status(arguments: argparse.Namespace, output: Output) -> int:
    from quire.zookeeper.status import ask_servers

    try_next = "quire zookeeper status --help"
    addresses = [host_and_port(each, try_next=try_next) for each in arguments.addresses]
    asked = await ask_servers(addresses)
    columns = ("address", "mode", "version", "node_count", "connections")
    output.table(({name: getattr(each, name) for name in columns} for each in asked), *columns)
    return ExitCode.DONE if all(each.serves for each in asked) else ExitCode.FINDINGS


def add_option_flags(server: Server, switch: Switch, verb: argparse.ArgumentParser) -> None:
    """Add `--config` and one flag for each option of a server. Raises ModuleNotFoundError."""
    module = server.options
    table, options = str(module.TABLE), module.OPTIONS
    verb.add_argument("--config", metavar="FILE", help=f"a TOML file with a [{table}] table")
    title = f"options, each also in the file and as QUIRE_{table.upper()}_<OPTION>"
    group = verb.add_argument_group(title)
    name: str
    option: OptionInfo
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
