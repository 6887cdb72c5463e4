"""`quire broker run`: declares the verb and its arguments, one flag for each option of a broker.

Leaves running it to `broker_server`, which is imported only when a broker runs.
"""

import argparse
import importlib
from collections.abc import Coroutine

from broker_layer.options import OPTIONS
from quire.cli.command_line import Handler, Noun
from quire.cli.output import Output

SERVER = "quire.cli.broker_server"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire broker`."""
    noun = Noun("broker", "Brokers: the processes that serve topics to Kafka's clients.")
    run = noun.verb("run", _later("run"), "run a broker", needs_cluster=False)
    run.add_argument("--config", metavar="FILE", help="a TOML file with a [broker] table")
    group = run.add_argument_group("options, each also in the file and as QUIRE_BROKER_<OPTION>")
    group.add_argument(
        "--topic-default",
        metavar="NAME=VALUE",
        action="append",
        help="one of --topic-defaults; may be given several times",
    )
    for option in OPTIONS.values():
        flag = f"--{option.name.replace('_', '-')}"
        text = f"{option.help} (default: {option.default or 'none'})".replace("%", "%%")
        if option.kind is bool:
            group.add_argument(
                flag,
                dest=option.name,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=text,
            )
        else:
            group.add_argument(
                flag, dest=option.name, type=option.kind, metavar=option.kind.__name__, help=text
            )
    return noun.parser


def _later(function: str) -> Handler:
    def handle(arguments: argparse.Namespace, output: Output) -> int | Coroutine[None, None, int]:
        handler: Handler = getattr(importlib.import_module(SERVER), function)
        return handler(arguments, output)

    return handle
