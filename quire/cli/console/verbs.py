"""Declaration of `quire console` and its arguments, one flag for each option of a console.

Leaves running a console to `console_server`, which is imported only when one runs.
"""

import argparse

from quire.cli.command_line import later, lone_command
from quire.cli.server_options import add_option_flags_later


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire console`."""
    text = (
        "Show a cluster in a browser: its health, bookies, ledgers, topics and repair. It is a "
        "client of the cluster, and changes nothing without --allow-writes."
    )
    command = lone_command("console", later("quire.cli.console.console_server", "run"), text)
    add_option_flags_later(command, "quire.console.options", argparse.BooleanOptionalAction)
    return command
