"""Declaration of `quire broker run` and its arguments, one flag for each option of a broker.

Leaves running a broker to `broker_server`, which is imported only when a broker runs.
"""

import argparse

from quire.cli.command_line import Noun, later
from quire.cli.server_options import add_option_flags_later

SERVER = "quire.cli.broker_server"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire broker`."""
    noun = Noun("broker", "Brokers: the processes that serve topics to Kafka's clients.")
    run = noun.verb("run", later(SERVER, "run"), "run a broker", needs_cluster=False)
    run.add_argument(
        "--topic-default",
        metavar="NAME=VALUE",
        action="append",
        help="one of --topic-defaults; may be given several times",
    )
    add_option_flags_later(run, "broker_layer.options", argparse.BooleanOptionalAction)
    return noun.parser
