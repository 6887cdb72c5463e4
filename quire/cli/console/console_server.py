"""Handler of `quire console`: a console in this process.

Leaves the console itself to `quire.console.main`.
"""

import argparse

from quire.cli.output import Output
from quire.cli.server_options import load_given, read_config_file
from quire.console.main import run_console
from quire.console.options import OPTIONS, load_options
from quire.errors import ExitCode


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run a console until it receives a stop signal; print one JSON line once it serves."""
    flags = {name: getattr(arguments, name) for name in OPTIONS}
    text, try_next = read_config_file(arguments.config), "quire console --help"
    options = load_given(load_options, text, flags, try_next=try_next)
    output.results.flush()
    return ExitCode.REFUSED if run_console(options) else ExitCode.DONE
