"""What `quire broker run` does: a broker in this process, until it is told to stop.

Leaves the broker itself to `broker_layer.main`.
"""

import argparse
import os

from broker_layer.main import run_broker
from broker_layer.options import OPTIONS, load_options
from quire.cli.config import read_config_file
from quire.cli.output import Output
from quire.errors import ExitCode, UsageError
from serving.errors import OptionError


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run a broker until it is told to stop; prints one JSON line once it serves."""
    flags = {name: getattr(arguments, name) for name in OPTIONS}
    if arguments.topic_default:
        flags["topic_defaults"] = " ".join(
            (flags["topic_defaults"] or "", *arguments.topic_default)
        )
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        options = load_options(read_config_file(arguments.config), os.environ, given)
    except OptionError as error:
        raise UsageError(str(error), try_next="quire broker run --help") from error
    output.results.flush()
    return ExitCode.REFUSED if run_broker(options) else ExitCode.DONE
