"""`quire bookie format|run|list|info|check`: declares the verbs and their arguments.

Leaves what they do to `bookie_server` and `bookie_registry`, of which only the one that is needed
is imported: a bookie's process should hold nothing of the client.
"""

import argparse

from bookie.options import OPTIONS, TABLE
from quire.cli.command_line import Noun, later
from quire.cli.server_options import add_option_flags

SERVER = "quire.cli.bookie_server"
REGISTRY = "quire.cli.bookie_registry"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire bookie`."""
    noun = Noun("bookie", "Bookies: the processes that store entries.")
    make = noun.verb(
        "format",
        later(SERVER, "format_directory"),
        "make a new bookie in an empty directory",
        needs_cluster=False,
    )
    add_option_flags(make, TABLE, OPTIONS, "store_true")
    make.add_argument("--prefix", default="bookie", help="how its id begins (default: bookie)")
    run = noun.verb("run", later(SERVER, "run"), "run a bookie", needs_cluster=False)
    add_option_flags(run, TABLE, OPTIONS, "store_true")
    run.add_argument(
        "--format-if-empty", metavar="PREFIX", help="first make a new bookie if there is none"
    )
    check = noun.verb(
        "check",
        later(SERVER, "check"),
        "read a stopped bookie's whole log and test every checksum",
        needs_cluster=False,
    )
    check.add_argument("data_dir", metavar="DIR")
    noun.verb("list", later(REGISTRY, "list_all"), "list every bookie, up or not")
    info = noun.verb("info", later(REGISTRY, "info"), "print what one bookie says of itself")
    info.add_argument("bookie", metavar="ID")
    return noun.parser
