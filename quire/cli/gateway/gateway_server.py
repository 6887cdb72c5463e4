"""Handler of `quire gateway run`: a gateway in this process.

Leaves the gateway itself to `quire.gateway.main`.
"""

import argparse

from quire.cli.output import Output
from quire.cli.server_options import load_given, read_config_file
from quire.errors import ExitCode
from quire.gateway.main import run_gateway
from quire.gateway.options import OPTIONS, load_options


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run a gateway until it receives a stop signal; print one JSON line once it serves."""
    flags = {name: getattr(arguments, name) for name in OPTIONS}
    text, try_next = read_config_file(arguments.config), "quire gateway run --help"
    options = load_given(load_options, text, flags, try_next=try_next)
    output.results.flush()
    return ExitCode.REFUSED if run_gateway(options) else ExitCode.DONE
