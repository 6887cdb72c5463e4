"""Handler of `quire broker run`: a broker in this process.

Leaves the broker itself to `broker_layer.main`.
"""

import argparse

from broker_layer.main import run_broker
from broker_layer.options import OPTIONS, load_options
from quire.cli.output import Output
from quire.cli.server_options import load_given, read_config_file
from quire.errors import ExitCode


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run a broker until it receives a stop signal; print one JSON line once it serves."""
    flags = {name: getattr(arguments, name) for name in OPTIONS}
    if arguments.topic_default:
        flags["topic_defaults"] = " ".join(
            (flags["topic_defaults"] or "", *arguments.topic_default)
        )
    try_next = "quire broker run --help"
    options = load_given(load_options, read_config_file(arguments.config), flags, try_next=try_next)
    output.results.flush()
    return ExitCode.REFUSED if run_broker(options) else ExitCode.DONE
