"""`quire bookie format|run|list|info|check`: declares the verbs and their arguments.

Leaves what they do to `bookie_server` and `bookie_registry`, of which only the one that is needed
is imported: a bookie's process should hold nothing of the client.
"""

import argparse
import importlib
from collections.abc import Coroutine

from bookie.options import OPTIONS
from quire.cli.command_line import Handler, Noun
from quire.cli.output import Output

SERVER = "quire.cli.bookie_server"
REGISTRY = "quire.cli.bookie_registry"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire bookie`."""
    noun = Noun("bookie", "Bookies: the processes that store entries.")
    make = noun.verb(
        "format",
        _later(SERVER, "format_directory"),
        "make a new bookie in an empty directory",
        needs_cluster=False,
    )
    add_server_options(make)
    make.add_argument("--prefix", default="bookie", help="how its id begins (default: bookie)")
    run = noun.verb("run", _later(SERVER, "run"), "run a bookie", needs_cluster=False)
    add_server_options(run)
    run.add_argument(
        "--format-if-empty", metavar="PREFIX", help="first make a new bookie if there is none"
    )
    check = noun.verb(
        "check",
        _later(SERVER, "check"),
        "read a stopped bookie's whole log and test every checksum",
        needs_cluster=False,
    )
    check.add_argument("data_dir", metavar="DIR")
    noun.verb("list", _later(REGISTRY, "list_all"), "list every bookie, up or not")
    info = noun.verb("info", _later(REGISTRY, "info"), "print what one bookie says of itself")
    info.add_argument("bookie", metavar="ID")
    return noun.parser


def add_server_options(verb: argparse.ArgumentParser) -> None:
    """Add one flag for each option of a bookie."""
    verb.add_argument("--config", metavar="FILE", help="a TOML file with a [bookie] table")
    group = verb.add_argument_group("options, each also in the file and as QUIRE_BOOKIE_<OPTION>")
    for option in OPTIONS.values():
        flag = f"--{option.name.replace('_', '-')}"
        text = f"{option.help} (default: {option.default or 'none'})".replace("%", "%%")
        if option.kind is bool:
            group.add_argument(flag, dest=option.name, action="store_true", default=None, help=text)
        else:
            group.add_argument(
                flag, dest=option.name, type=option.kind, metavar=option.kind.__name__, help=text
            )


def _later(module: str, function: str) -> Handler:
    def handle(arguments: argparse.Namespace, output: Output) -> int | Coroutine[None, None, int]:
        handler: Handler = getattr(importlib.import_module(module), function)
        return handler(arguments, output)

    return handle
