"""Declaration of `quire top` and its arguments.

Leaves readings and printing to `top_view`, which is imported only when it runs.
"""

import argparse

from quire.cli.command_line import add_shared_options, later, positive


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire top`."""
    text = (
        "Show what the servers of a cluster do now: entries and bytes per second, latency, disks, "
        "topics, and the state of repair. It repeats until Ctrl-C."
    )
    command = argparse.ArgumentParser(prog="quire top", description=text)
    add_shared_options(command, needs_cluster=True)
    command.add_argument(
        "--interval", type=positive, default=2, metavar="S", help="seconds between two readings"
    )
    command.add_argument("--once", action="store_true", help="print one table, and stop")
    command.set_defaults(
        handler=later("quire.cli.watching.top_view", "top"), is_audited=False, act="top"
    )
    return command
