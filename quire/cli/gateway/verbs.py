"""Declaration of `quire gateway run` and its arguments, one flag for each option of a gateway.

Leaves running a gateway to `gateway_server`, which is imported only when a gateway runs.
"""

import argparse

from quire.cli.command_line import Noun, later
from quire.cli.server_options import add_option_flags_later

SERVER = "quire.cli.gateway.gateway_server"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire gateway`."""
    text = "Gateways: the processes that do the metadata work of clients that are not trusted."
    noun = Noun("gateway", text)
    run = noun.verb("run", later(SERVER, "run"), "run a gateway", needs_cluster=False)
    add_option_flags_later(run, "quire.gateway.options", argparse.BooleanOptionalAction)
    return noun.parser
