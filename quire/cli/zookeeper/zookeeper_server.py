"""Handler of `quire zookeeper run`: a ZooKeeper server in the foreground.

Leaves the server itself to `quire.zookeeper.main`.
"""

import argparse

from quire.cli.output import Output
from quire.cli.server_options import load_given, read_config_file
from quire.errors import ExitCode
from quire.zookeeper.main import run_zookeeper
from quire.zookeeper.options import OPTIONS, load_options


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run a server until it receives a stop signal; print one JSON line once it serves."""
    flags = {name: getattr(arguments, name) for name in OPTIONS}
    if arguments.server:
        flags["servers"] = " ".join((flags["servers"] or "", *arguments.server))
    text, try_next = read_config_file(arguments.config), "quire zookeeper run --help"
    options = load_given(load_options, text, flags, try_next=try_next)
    output.results.flush()
    return ExitCode.REFUSED if run_zookeeper(options) else ExitCode.DONE
