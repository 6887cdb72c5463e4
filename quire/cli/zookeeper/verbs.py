"""Declaration of `quire zookeeper` and its arguments, one flag for each option of a server.

Leaves the work to `zookeeper_server` and `zookeeper_status`, which are imported only when it is
done.
"""

import argparse

from quire.cli.command_line import Noun, later
from quire.cli.server_options import add_option_flags_later
from quire.zookeeper import PORT_DEFAULT

SERVER = "quire.cli.zookeeper.zookeeper_server"
STATUS = "quire.cli.zookeeper.zookeeper_status"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire zookeeper`."""
    text = "ZooKeeper, which keeps the metadata: the one in this package, which needs Java."
    noun = Noun("zookeeper", text)
    run = noun.verb(
        "run", later(SERVER, "run"), "run one server, alone or of an ensemble", needs_cluster=False
    )
    run.add_argument(
        "--server",
        metavar="N=HOST:PORT:PORT",
        action="append",
        help="one of --servers; give all of them, this server included",
    )
    add_option_flags_later(run, "quire.zookeeper.options", argparse.BooleanOptionalAction)
    status = noun.verb(
        "status", later(STATUS, "status"), "show whether servers serve", needs_cluster=False
    )
    status.add_argument(
        "addresses",
        metavar="HOST:PORT",
        nargs="*",
        default=[f"127.0.0.1:{PORT_DEFAULT}"],
        help="servers to ask; status 1 if one does not serve",
    )
    return noun.parser
